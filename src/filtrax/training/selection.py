"""The state of an ensemble from epoch to epoch: its best states, and rollbacks to them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from filtrax.training.steps import Learner, choose


class Ensemble(eqx.Module):
    """The state of an ensemble; all but the epoch has a leading axis of members.

    **Attributes:**

    - `learner`, `best`: the present state, and the one with the lowest validation loss.
    - `best_loss`, `best_epoch`: validation loss and epoch of that state.
    - `start_loss`: the lower one of the validation losses before and after the first epoch.
    - `rate`: a factor of the learning rate; each rollback halves it.
    - `rollbacks`: the number of times that the member went back to its best state.
    """

    learner: Learner
    best: Learner
    best_loss: Float[Array, " members"]
    best_epoch: Int[Array, " members"]
    start_loss: Float[Array, " members"]
    rate: Float[Array, " members"]
    rollbacks: Int[Array, " members"]
    epoch: Int[Array, ""]


def latest(ensemble: Ensemble, learner: Learner) -> Ensemble:
    """Keeps the latest state, which counts as the best one where nothing is validated."""
    return dataclasses.replace(
        ensemble,
        learner=learner,
        best=learner,
        best_epoch=ensemble.best_epoch + 1,
        epoch=ensemble.epoch + 1,
    )


@eqx.filter_jit
def select(ensemble: Ensemble, learner: Learner, finite: Array, loss: Array) -> Ensemble:
    """Keeps members that are better than ever, and sets back those that have diverged."""
    epoch = ensemble.epoch + 1
    finite = finite & jnp.isfinite(loss)
    first = (epoch == 1) & finite
    start = jnp.where(first, jnp.fmin(ensemble.start_loss, loss), ensemble.start_loss)
    best = ensemble.best_loss
    # Half of what was learned is gone. The second term is the smallest loss of ground that
    # counts, for stages that begin close to their optimum, or at something that is no number.
    allowed = jnp.fmax(0.5 * (start - best), 1 + 0.5 * jnp.abs(best))
    diverged = ~finite | (loss > best + allowed)
    better = finite & ((loss < best) | ~jnp.isfinite(best))

    def of_member(better, diverged, new, best):
        best = choose(better, new, best)
        return choose(diverged, best, new), best

    learner, best_learner = jax.vmap(of_member)(better, diverged, learner, ensemble.best)
    return Ensemble(
        learner=learner,
        best=best_learner,
        best_loss=jnp.where(better, loss, best),
        best_epoch=jnp.where(better, epoch, ensemble.best_epoch),
        start_loss=start,
        rate=jnp.where(diverged, 0.5, 1.0).astype(loss.dtype) * ensemble.rate,
        rollbacks=ensemble.rollbacks + diverged.astype(ensemble.rollbacks.dtype),
        epoch=epoch,
    )
