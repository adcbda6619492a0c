"""Which members of an ensemble go back to their best state, and which do not."""

import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.training.selection import Ensemble, select
from filtrax.training.steps import Learner


def selected(losses, finite=True):
    """The rollbacks of one member with these validation losses, the first before training."""
    one = jnp.ones(1)
    state = Ensemble(
        learner=Learner(one, one),
        best=Learner(one, one),
        best_loss=jnp.asarray(losses[:1]),
        best_epoch=jnp.zeros(1, int),
        start_loss=jnp.asarray(losses[:1]),
        rate=one,
        rollbacks=jnp.zeros(1, int),
        epoch=jnp.asarray(0),
    )
    for number, loss in enumerate(losses[1:], start=2):
        learner = Learner(number * one, one)
        state = select(state, learner, jnp.asarray([finite]), jnp.asarray([loss]))
    return state


@pytest.mark.parametrize(
    ("losses", "rollbacks"),
    [
        ([10.0, 9.0, 9.9, 9.2, 8.0], 0),  # small fluctuations
        ([3.0, 4.0, 3.5], 0),  # a start close to the optimum
        ([8.0, 12.5, 7.0], 0),  # a first epoch that loses less than half
        ([8.0, 14.0, 7.0], 1),
        ([1000.0, 100.0, 10.0, 50.0, 9.0], 0),  # less than half of what was learned since epoch 1
        ([1000.0, 100.0, 10.0, 60.0, 9.0], 1),  # more than half of it
        ([10.0, 8.0, np.nan, 7.0], 1),
        ([10.0, 8.0, np.inf, 7.0], 1),
        ([np.nan, 8.0, 7.0, 100.0], 1),  # rejects a bound that is not a number for ever
        ([np.nan, np.nan, 7.0, 100.0], 2),
        ([np.inf, 8.0, 7.0, 100.0], 1),
        ([-5.0, -6.0, -4.0], 0),
        ([-5.0, -6.0, 5.0], 1),
    ],
)
def test_what_counts_as_divergence(losses, rollbacks):
    state = selected(losses)
    assert int(state.rollbacks[0]) == rollbacks
    assert float(state.rate[0]) == 0.5**rollbacks
    assert float(state.best_loss[0]) == np.nanmin(losses)
    assert int(state.best_epoch[0]) == np.nanargmin(losses)


def test_a_member_with_a_step_that_is_not_finite_goes_back_whatever_its_validation():
    assert int(selected([10.0, 8.0], finite=False).rollbacks[0]) == 1
    assert float(selected([10.0, 8.0], finite=False).best_loss[0]) == 10.0
