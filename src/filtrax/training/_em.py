"""Learning by expectation maximization: from smoothed states, without labels."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from filtrax._checks import check_whole
from filtrax._given import unwrap
from filtrax._types import Key, Scalar
from filtrax.beliefs import Gaussian
from filtrax.filters import AbstractFilter, filter_trajectory
from filtrax.filters._run import sense_all
from filtrax.filters.links import require_kalman
from filtrax.linalg import precise
from filtrax.smoothing import smooth_trajectory
from filtrax.state_space import StateSpaceModel
from filtrax.training._fit import as_data_set
from filtrax.training._maximization import PRIOR, Expectations, closed_forms, initial_moments
from filtrax.training.parts import trainable
from filtrax.trajectory import Trajectory

TRIES = 20
"""How often a step along the gradient is shortened until the likelihood rises."""


class Learned(eqx.Module):
    """The result of `fit_em`.

    **Attributes:**

    - `model`: with the learned parts.
    - `prior`: the learned belief before the first step; None where it was not trained.
    - `log_likelihoods`: of all data, before the first step and after each; none is below the one
      before it but for rounding.
    """

    model: Any
    prior: Gaussian | None
    log_likelihoods: np.ndarray


class _State(eqx.Module):
    """Model, data with their priors, and the length of the next step along the gradient."""

    model: Any
    data: Trajectory
    rate: Scalar


def fit_em(
    filt: AbstractFilter,
    model: StateSpaceModel,
    data: Trajectory,
    *,
    train: Sequence[str],
    num_steps: int = 50,
    tolerance: float = 0.0,
    key: Key | None = None,
) -> Learned:
    """Maximizes the likelihood of readings over parts of a model, by expectation maximization.

    Each step smooths all sequences, and then maximizes the expected log density of states and
    readings (Shumway & Stoffer 1982). That has a closed form for

    - "model.process", "model.observe" and their "matrix" or "input_matrix", if they are `Linear`;
    - "model.process_noise", if it is constant noise and the process is linear in the state;
    - "model.sensor.noise", if the sensor is a `DirectSensor` with constant noise and the
      observation is linear in the state;
    - "prior": the belief before the first step, which all sequences then share.

    All other parts that `train` names take a step along the gradient of the likelihood, as long as
    it raises it. Missing readings, and missing components, are exact.

    **Arguments:**

    - `data`: a trajectory or several with a leading axis; no states are needed.
    - `train`: names of parts, as in `fit`, and "prior".
    - `num_steps`: the largest number of steps.
    - `tolerance`: stops once a step raises the log likelihood by less than this share of it.
    """
    require_kalman(filt, "`fit_em`")
    check_whole("num_steps", num_steps, 1)
    if isinstance(train, str):
        raise ValueError(f"`train` must be a sequence of names, got the string {train!r}.")
    data = jax.tree.map(jnp.asarray, as_data_set(data, model))
    names = tuple(name for name in train if name != PRIOR)
    mask = trainable(filt, model, names)[1] if names else jax.tree.map(lambda _: False, model)
    if not names and PRIOR not in train:
        raise ValueError('`train` must name at least one part, like "model.process_noise".')
    state = _State(model, data, jnp.asarray(1e-3, data.initial.dtype))
    log_likelihoods = []
    for _ in range(num_steps):
        state, log_likelihood = _em_step(filt, state, mask, PRIOR in train, key)
        log_likelihoods.append(_checked(log_likelihood, len(log_likelihoods)))
        if _settled(log_likelihoods, tolerance):
            break
    final = _log_likelihood(filt, state.model, state.data, key)
    log_likelihoods.append(_checked(final, len(log_likelihoods)))
    first = jax.tree.map(lambda leaf: leaf[0], state.data)
    prior = first.prior if PRIOR in train else None
    return Learned(state.model, prior, np.asarray(log_likelihoods))


def _checked(log_likelihood: Scalar, step: int) -> float:
    value = float(log_likelihood)
    if not np.isfinite(value):
        raise FloatingPointError(
            f"The log likelihood after {step} steps of `fit_em` is {value}: the start must be a "
            "model under which the readings are possible; raise noise that is close to zero."
        )
    return value


def _settled(values: list[float], tolerance: float) -> bool:
    return (
        len(values) > 1 and tolerance > 0 and values[-1] - values[-2] < tolerance * abs(values[-1])
    )


@eqx.filter_jit
@precise
def _em_step(filt, state, mask, with_prior, key) -> tuple[_State, Scalar]:
    """The next model and data, and the likelihood of those before."""
    expectations, log_likelihood = _expectations(filt, state, key)
    model, done = closed_forms(state.model, expectations, mask)
    data = state.data
    if with_prior:
        mean, covariance = initial_moments(expectations.initial)
        data = eqx.tree_at(
            lambda d: (d.initial, d.initial_covariance),
            data,
            tuple(
                jnp.broadcast_to(leaf, (len(data.initial), *leaf.shape))
                for leaf in (mean, covariance)
            ),
        )
    others = jax.tree.map(lambda trained, closed: trained and not closed, mask, done)
    rate = state.rate
    if any(jax.tree.leaves(others)):
        model, rate = _uphill(filt, model, data, others, rate, key)
    return _State(model, data, rate), log_likelihood


def _expectations(filt: Any, state: _State, key: Key | None) -> tuple[Expectations, Scalar]:
    """Smoothed beliefs and measurements of all sequences, and the likelihood."""

    def of_sequence(trajectory, key):
        found = smooth_trajectory(filt, state.model, trajectory, key=key)
        bound = unwrap(state.model).bind(trajectory.context)
        measurements = sense_all(
            bound, trajectory.readings, trajectory.observed, trajectory.inputs, trajectory.context
        )
        expectations = Expectations(
            found.initial, found.beliefs, found.cross_covariances, measurements, trajectory.inputs
        )
        return expectations, jnp.asarray(found.log_likelihood)

    expectations, log_likelihoods = jax.vmap(of_sequence)(state.data, _keys(state.data, key))
    return expectations, log_likelihoods.sum()


def _keys(data: Trajectory, key: Key | None) -> Any:
    return None if key is None else jr.split(key, len(data.initial))


@eqx.filter_jit
def _log_likelihood(filt: Any, model: Any, data: Trajectory, key: Key | None) -> Scalar:
    def of_sequence(trajectory, key):
        return jnp.asarray(filter_trajectory(filt, model, trajectory, key=key).log_likelihood)

    return jax.vmap(of_sequence)(data, _keys(data, key)).sum()


def _uphill(
    filt: Any, model: Any, data: Trajectory, mask: Any, rate: Scalar, key: Key | None
) -> tuple[Any, Scalar]:
    """A step along the gradient, shortened until the likelihood rises; none if it never does."""
    parameters, rest = eqx.partition(model, mask)

    def value(parameters: Any) -> Scalar:
        return _log_likelihood(filt, eqx.combine(parameters, rest), data, key)

    before, gradient = jax.value_and_grad(value)(parameters)
    norm = jnp.sqrt(
        sum(((leaf**2).sum() for leaf in jax.tree.leaves(gradient)), jnp.zeros_like(before))
    )
    norm = jnp.where(norm > 0, norm, 1.0)

    def moved(rate: Float[Array, ""]) -> Any:
        return jax.tree.map(
            lambda p, g: p + (rate / norm).astype(p.dtype) * g, parameters, gradient
        )

    def worse(carry: Any) -> Any:
        rate, tries = carry
        return ~(value(moved(rate)) > before) & (tries < TRIES)

    rate, tries = jax.lax.while_loop(
        worse, lambda carry: (carry[0] / 2, carry[1] + 1), (rate, jnp.asarray(0))
    )
    better = tries < TRIES
    chosen = jax.tree.map(lambda new, old: jnp.where(better, new, old), moved(rate), parameters)
    return eqx.combine(chosen, rest), jnp.where(tries == 0, 2 * rate, rate)
