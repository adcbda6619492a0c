"""Gradients of every loss through every filter against finite differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.core import subjaxprs
from jax.flatten_util import ravel_pytree

import filtrax
from filtrax import losses
from filtrax.filters import filter_trajectory
from filtrax.resampling import NoResampling
from systems import POSE, all_filters, beacon_model, beacon_trajectory

MASK = jnp.asarray([[1, 1], [1, 0], [0, 0], [1, 1]], bool)
LABELLED = jnp.asarray([[1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 0]], bool)
KERNEL = filtrax.constant_noise(jnp.diag(jnp.asarray([0.5, 0.5, 0.3])))
KINDS = all_filters()
FILTERS = {
    "ekf": KINDS["ekf"],
    "iterated_ekf": filtrax.ExtendedKalmanFilter(iterations=2),
    "ukf": filtrax.UnscentedKalmanFilter(filtrax.LearnedScaling(3, kappa=1.0)),
    "ukf_paper": KINDS["ukf_paper"],
    "ukf_dropped_centre": KINDS["ukf_dropped_centre"],
    "mcukf": KINDS["mcukf"],
    # Which particles are drawn changes in jumps, so resampling is off; its estimators have tests
    # of their own.
    "pf": filtrax.ParticleFilter(50, NoResampling(), KERNEL),
    "lstm": KINDS["lstm"],
}
RESAMPLED = filtrax.ParticleFilter(50, kernel=KERNEL)


def _number_of(name, jaxpr):
    inner = sum(_number_of(name, sub) for sub in subjaxprs(jaxpr))
    return inner + sum(equation.primitive.name == name for equation in jaxpr.eqns)


def test_ancestors_are_drawn_once():
    # Rejects a backward pass that sums up weights and searches in them again.
    def value(model):
        trajectory = beacon_trajectory(num_steps=4)
        result = filter_trajectory(RESAMPLED, model, trajectory, recompute=True, key=jr.key(1))
        return result.log_likelihood

    traced, _ = eqx.filter_make_jaxpr(eqx.filter_value_and_grad(value))(beacon_model())[:2]
    assert _number_of("cumsum", traced.jaxpr) == 1


@pytest.mark.parametrize("name", ["ekf", "pf", "pf_resampled"])
def test_steps_that_are_computed_again_have_the_same_gradient(name):
    # Rejects a backward pass that draws other random numbers than the forward pass.
    trajectory = beacon_trajectory(num_steps=4)
    filt = {**FILTERS, "pf_resampled": RESAMPLED}[name]

    def loss(model, recompute):
        result = filter_trajectory(filt, model, trajectory, recompute=recompute, key=jr.key(1))
        means = jax.vmap(lambda belief: belief.moments(POSE).mean)(result.beliefs)
        return means.sum() + result.log_likelihood

    keeping, again = (eqx.filter_grad(loss)(learned_model(), flag) for flag in (False, True))
    assert jnp.abs(ravel_pytree(keeping)[0]).max() > 0.1
    np.testing.assert_allclose(ravel_pytree(again)[0], ravel_pytree(keeping)[0], rtol=1e-9)


class SmoothProcess(eqx.Module):
    """A learned process without kinks, at which finite differences would be wrong."""

    weight: jax.Array

    def __call__(self, state, inputs):
        return state + jnp.tanh(self.weight @ jnp.concatenate([state, inputs]))


class SmoothHead(eqx.Module):
    weight: jax.Array

    def __call__(self, state, inputs):
        return jnp.tanh(self.weight @ jnp.concatenate([state, inputs]))


def learned_model():
    """The beacon system with a learned process and heteroscedastic, full process noise."""
    rng = np.random.default_rng(0)
    head = SmoothHead(jnp.asarray(0.1 * rng.normal(size=(6, 5))))
    process = SmoothProcess(jnp.asarray(0.3 * rng.normal(size=(3, 5))))
    noise = filtrax.heteroscedastic_noise(head, 0.1 * jnp.eye(3), floor=0.01)
    known = beacon_model(sensor_std=(1.0, 0.5))
    return eqx.tree_at(lambda m: (m.process, m.process_noise), known, (process, noise))


@pytest.mark.parametrize("name", ["ekf", "ukf", "pf"])
@pytest.mark.parametrize("recompute", [False, True])
def test_second_derivatives_are_differences_of_gradients(name, recompute):
    # Rejects a rule for derivatives that holds only once, as within a loop it may.
    trajectory = beacon_trajectory(num_steps=3)
    arrays, rest = eqx.partition(learned_model(), eqx.is_inexact_array)
    flat, restore = ravel_pytree(arrays)
    direction = jnp.asarray(np.random.default_rng(1).normal(size=flat.shape))

    def loss(flat):
        model = eqx.combine(restore(flat), rest)
        result = filter_trajectory(
            FILTERS[name], model, trajectory, recompute=recompute, key=jr.key(1)
        )
        return result.log_likelihood

    gradient = jax.jit(jax.grad(loss))
    change = jax.jit(lambda flat: jax.jvp(jax.grad(loss), (flat,), (direction,))[1])(flat)
    step = 1e-5 * direction
    expected = (gradient(flat + step) - gradient(flat - step)) / 2e-5
    np.testing.assert_allclose(change, expected, atol=1e-5 * jnp.abs(expected).max())


VARIANTS = ("iterated_ekf", "ukf_paper", "ukf_dropped_centre")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in VARIANTS else []) for name in FILTERS],
)
def test_equal_finite_differences(name):
    """Rejects a cut gradient anywhere on the way from parameters and prior to a loss.

    A detached Jacobian (D7) is one; a NaN that leaks from a masked reading or label another.
    """
    trajectory = beacon_trajectory(4)
    trajectory = filtrax.Trajectory(
        trajectory.initial,
        trajectory.initial_covariance,
        jnp.where(MASK, trajectory.readings, jnp.nan),
        inputs=trajectory.inputs,
        states=jnp.where(LABELLED, trajectory.states, jnp.nan),
        observed=MASK,
        labelled=LABELLED,
    )
    everything = (FILTERS[name], learned_model(), trajectory.initial)
    parameters, rest = eqx.partition(everything, eqx.is_inexact_array)
    start, unravel = ravel_pytree(parameters)
    terms = [losses.nll, losses.squared_error, losses.mixed]
    if name.startswith("pf"):
        terms.append(losses.mixture_nll)
    states, labels = trajectory.known_states()

    def total(vector):
        """All losses and the log-likelihood, with weights that let none hide behind another."""
        filt, model, initial = eqx.combine(unravel(vector), rest)
        moved = eqx.tree_at(lambda t: t.initial, trajectory, initial)
        result = filter_trajectory(filt, model, moved, key=jr.key(3))
        each = jax.vmap(lambda b, x, seen: jnp.stack([f(b, x, POSE, seen) for f in terms]))
        found = each(result.beliefs, states, labels).sum(0)
        if result.log_likelihood is not None:
            found = jnp.append(found, result.log_likelihood)
        return found @ jnp.sqrt(jnp.arange(2.0, 2.0 + found.size))

    gradient = jax.jit(jax.grad(total))(start)
    assert jnp.isfinite(gradient).all()
    rng, step = np.random.default_rng(0), 1e-5
    directions = jnp.asarray(rng.normal(size=(10, start.size)))
    ends = jnp.concatenate([step * directions, -step * directions])
    ahead, behind = jnp.split(jax.jit(jax.vmap(lambda end: total(start + end)))(ends), 2)
    np.testing.assert_allclose(
        directions @ gradient, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-5
    )


def test_cut_jacobians_give_another_gradient():
    """The paper's option is a different gradient of the same value; off, it is the true one."""
    trajectory, model = beacon_trajectory(4), beacon_model()
    objective = filtrax.training.filtering(losses.nll)

    def loss(initial, filt):
        moved = eqx.tree_at(lambda t: t.initial, trajectory, initial)
        return objective(filt, model, moved, jnp.asarray(0.0), jr.key(0))

    value_and_gradient = eqx.filter_jit(jax.value_and_grad(loss))
    whole = value_and_gradient(trajectory.initial, filtrax.ExtendedKalmanFilter())
    paper = filtrax.ExtendedKalmanFilter(cut_jacobian_gradients=True)
    cut = value_and_gradient(trajectory.initial, paper)
    np.testing.assert_allclose(cut[0], whole[0], rtol=1e-12)
    assert jnp.abs(cut[1] - whole[1]).max() > 1e-3
