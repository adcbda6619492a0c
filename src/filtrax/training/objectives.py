"""Objectives: one trajectory in, a number out. What a training stage minimizes.

An objective is any function `(filt, model, trajectory, progress, key) -> number`; `progress`
runs from 0 to 1 over a training stage. Pretraining a sensor or a process is an objective that
does not run the filter.
"""

import functools
from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from filtrax.arrays import Key, Scalar
from filtrax.filters import AbstractFilter, filter_trajectory
from filtrax.filters.run import sense_all
from filtrax.linalg import gaussian_log_density
from filtrax.losses import Loss
from filtrax.model import StateSpaceModel
from filtrax.trajectory import Trajectory

Objective = Callable[[AbstractFilter, StateSpaceModel, Trajectory, Scalar, Key], Scalar]
Schedule = float | Callable[[Scalar], Scalar]


@functools.cache  # the same loss gives the same objective, whose compiled programs are found again
def filtering(loss: Loss) -> Objective:
    """Runs the filter and averages a loss over the labelled steps."""

    def objective(filt, model, trajectory, progress, key):
        del progress
        beliefs, _ = filter_trajectory(filt, model, trajectory, key=key)
        space = model.bind(trajectory.context).state_space
        states, labels = trajectory.known_states()

        def one(belief, state, labels):
            return loss(belief, state, space, labels)

        return _average(jax.vmap(one)(beliefs, states, labels), labels.any(-1))

    return objective


def measurement_nll(
    filt: AbstractFilter, model: StateSpaceModel, trajectory: Trajectory, progress: Scalar, key: Key
) -> Scalar:
    """-ln p(z_t | z_1, ..., z_{t-1}), averaged over the steps with an observation.

    The marginal likelihood of what was measured: it needs no ground truth.
    """
    del progress
    _, info = filter_trajectory(filt, model, trajectory, key=key)
    if info.log_likelihood is None:
        raise ValueError(
            f"`measurement_nll` needs a filter with a likelihood; {type(filt).__name__} has none."
        )
    measurements = sense_all(
        model, trajectory.readings, trajectory.observed, trajectory.context, key=key
    )
    return _average(-info.log_likelihood, jax.vmap(lambda m: m.seen().any())(measurements))


def sensor_nll(
    filt: AbstractFilter, model: StateSpaceModel, trajectory: Trajectory, progress: Scalar, key: Key
) -> Scalar:
    """-ln N(h(x_t); z_t, R_t): the measurement against what should be observed.

    Averaged over steps whose state is labelled and of which something was observed.
    """
    del filt, progress
    model = model.bind(trajectory.context)
    measurements = sense_all(
        model, trajectory.readings, trajectory.observed, trajectory.context, key=key
    )
    states, labels = trajectory.known_states()

    def one(measurement, state):
        difference = model.observation_space.difference(measurement.value, model.observe(state))
        return -gaussian_log_density(difference, measurement.covariance, measurement.seen())

    counts = labels.all(-1) & jax.vmap(lambda m: m.seen().any())(measurements)
    return _average(jax.vmap(one)(measurements, states), counts)


def process_nll(
    filt: AbstractFilter, model: StateSpaceModel, trajectory: Trajectory, progress: Scalar, key: Key
) -> Scalar:
    """-ln N(x_t; f(x_{t-1}, u_t), Q(x_{t-1}, u_t)): single steps from one true state to the next.

    Averaged over pairs of labelled states; components of x_t that are not labelled are left out.
    """
    del filt, progress, key
    model = model.bind(trajectory.context)
    states, labels = trajectory.known_states()
    controls = jax.tree.map(lambda leaf: leaf[1:], trajectory.controls)

    def one(before, after, control, labels):
        difference = model.state_space.difference(after, model.process(before, control))
        covariance = model.process_noise.covariance(before, control)
        return -gaussian_log_density(difference, covariance, labels)

    losses = jax.vmap(one)(states[:-1], states[1:], controls, labels[1:])
    return _average(losses, labels[:-1].all(-1) & labels[1:].any(-1))


def l2(
    filt: AbstractFilter, model: StateSpaceModel, trajectory: Trajectory, progress: Scalar, key: Key
) -> Scalar:
    """The sum of all squared parameters, for weight decay."""
    del trajectory, progress, key
    leaves = jax.tree.leaves(eqx.filter((filt, model), eqx.is_inexact_array))
    return jnp.stack([(leaf**2).sum() for leaf in leaves]).sum()


def weighted(terms: Mapping[Objective, Schedule]) -> Objective:
    """A weighted sum of objectives; a weight is a number or a function of the progress."""
    if not terms:
        raise ValueError("`weighted` needs at least one objective, got none.")

    def objective(filt, model, trajectory, progress, key):
        total = jnp.zeros_like(progress)
        for term, schedule in terms.items():
            weight = schedule(progress) if callable(schedule) else schedule
            total = total + weight * term(filt, model, trajectory, progress, key)
        return total

    return objective


def _average(values: Array, mask: Array) -> Scalar:
    """The mean over the mask, and zero where nothing counts: no labels, no gradient."""
    total = jnp.where(mask, values, 0.0).sum()
    return total / jnp.maximum(mask.sum(), 1).astype(total.dtype)
