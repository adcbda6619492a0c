"""Parts of a model that maximize the expected log density of states and readings.

All are averages over smoothed beliefs, with Eₜ[·] the expectation given all readings:

    [A B] = Σ E[x_t r_tᵀ] (Σ E[r_t r_tᵀ])⁻¹,   r_t = (x_{t-1}, u_t)
    Q = 1/n Σ E[(x_t - f(x_{t-1}))(x_t - f(x_{t-1}))ᵀ]

and the same for H and R with z_t and x_t. What was not observed of a measurement is one more
unknown: its expectation given the rest of the measurement and the state stands in its place
(Shumway & Stoffer 2017, section 6.4).
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._given import unwrap
from filtrax._types import Inputs
from filtrax.beliefs import Gaussian
from filtrax.filters.kalman import linearize
from filtrax.filters.sigma_points import depends
from filtrax.linalg import inverse, marginal_root, square_root, squared
from filtrax.noise import DiagonalNoise, FullNoise
from filtrax.sensors import DirectSensor, Measurement
from filtrax.spaces import Euclidean, Space
from filtrax.state_space import Linear, StateSpaceModel

PRIOR = "prior"
"""The name of the belief before the first step among the parts to train."""


class Expectations(eqx.Module):
    """Smoothed beliefs and measurements of sequences, on a leading axis."""

    initial: Gaussian
    beliefs: Gaussian
    cross_covariances: Float[Array, "*b t x x"]
    measurements: Measurement
    inputs: Inputs


def initial_moments(initial: Gaussian) -> tuple[Float[Array, " x"], Float[Array, "x x"]]:
    """Mean and covariance of the initial states of all sequences."""
    mean = initial.mean.mean(0)
    offsets = initial.mean - mean[None]
    return mean, initial.covariance.mean(0) + offsets.T @ offsets / len(offsets)


def closed_forms(model: StateSpaceModel, expected: Expectations, mask: Any) -> tuple[Any, Any]:
    """The model with the parts that have a closed form, and a mask of their arrays."""
    done = jax.tree.map(lambda _: False, model)
    old = unwrap(model)
    for name, step in (
        ("process", _process),
        ("process_noise", _process_noise),
        ("observe", _observe),
        ("sensor", _sensor),
    ):
        wanted = getattr(mask, name)
        if not any(jax.tree.leaves(wanted)):
            continue
        part = step(model, old, expected, wanted)
        if part is not None:
            model = dataclasses.replace(model, **{name: part})
            done = dataclasses.replace(done, **{name: wanted})
    return model, done


def _process(model: Any, old: Any, expected: Expectations, wanted: Any) -> Linear | None:
    del old
    if not (isinstance(model.process, Linear) and _is_flat(model.state_space)):
        return None

    def of_step(before, after, cross, inputs):
        second = before.covariance + _outer(before.mean, before.mean)
        regressor = _squares(model.process, second, before.mean, inputs)
        return _targets(
            model.process, cross.T + _outer(after.mean, before.mean), after.mean, inputs
        ), regressor

    sums = _sum(
        of_step, _befores(expected), expected.beliefs, expected.cross_covariances, expected.inputs
    )
    return _regressed(model.process, sums[0], sums[1], wanted)


def _process_noise(model: Any, old: Any, expected: Expectations, wanted: Any) -> Any:
    del wanted
    if not (_is_constant(model.process_noise) and _is_linear(model, "process", expected)):
        return None
    model, space = unwrap(model), old.state_space

    def of_step(before, after, cross, inputs):
        value, A = linearize(lambda x: model.process(x, inputs), before.mean, space, space)
        residual = space.difference(after.mean, value)
        mixed = A @ cross
        spread = after.covariance - mixed - mixed.T + A @ before.covariance @ A.T
        return spread + _outer(residual, residual), jnp.ones(())

    sums = _sum(
        of_step, _befores(expected), expected.beliefs, expected.cross_covariances, expected.inputs
    )
    return _with_covariance(model.process_noise, sums[0] / sums[1].astype(sums[0].dtype))


def _observe(model: Any, old: Any, expected: Expectations, wanted: Any) -> Linear | None:
    if not (isinstance(model.observe, Linear) and _is_flat(model.observation_space)):
        return None

    def of_step(belief, measurement, inputs):
        mean, gain, _ = _completion(old, belief, measurement, inputs)
        slope = jax.jacfwd(lambda x: old.observe(x, inputs))(belief.mean)
        # E[z xᵀ] with z = H x + W (z - H x) + e, of which the last is independent of x.
        cross = _outer(mean, belief.mean) + (slope - gain @ slope) @ belief.covariance
        second = belief.covariance + _outer(belief.mean, belief.mean)
        some = measurement.seen().any()
        both = (
            _targets(model.observe, cross, mean, inputs),
            _squares(model.observe, second, belief.mean, inputs),
        )
        return jax.tree.map(lambda leaf: jnp.where(some, leaf, 0.0), both)

    sums = _sum(of_step, expected.beliefs, expected.measurements, expected.inputs)
    return _regressed(model.observe, sums[0], sums[1], wanted)


def _sensor(model: Any, old: Any, expected: Expectations, wanted: Any) -> Any:
    del wanted
    sensor, space = model.sensor, model.observation_space
    linear = isinstance(sensor, DirectSensor) and _is_linear(model, "observe", expected)
    if not (linear and _is_constant(sensor.noise)):
        return None
    model = unwrap(model)

    def of_step(belief, measurement, inputs):
        mean, gain, left = _completion(old, belief, measurement, inputs)
        value, H = linearize(
            lambda x: model.observe(x, inputs), belief.mean, model.state_space, space
        )
        before = jax.jacfwd(lambda x: old.observe(x, inputs))(belief.mean)
        residual = space.difference(mean, value)
        spread = (before - gain @ before - H) @ belief.factor
        total = squared(spread) + _outer(residual, residual) + left
        some = measurement.seen().any()
        return jnp.where(some, total, 0.0), some.astype(total.dtype)

    total, count = _sum(of_step, expected.beliefs, expected.measurements, expected.inputs)
    covariance = total / jnp.maximum(count, 1.0)
    return dataclasses.replace(sensor, noise=_with_covariance(sensor.noise, covariance))


def _completion(
    model: StateSpaceModel, belief: Gaussian, measurement: Measurement, inputs: Inputs
) -> tuple[Array, Array, Array]:
    """E[z] of the whole measurement, W with E[z | x] = h(x) + W (z - h(x)), and the rest of R.

    W = R₊ₒ Rₒₒ⁻¹ for what was observed, so that it is a row of the identity there.
    """
    seen, space = measurement.seen(), model.observation_space
    expected = model.observe(belief.mean, inputs)
    inverted = inverse(marginal_root(measurement.factor, seen))
    covariance = jnp.where(seen[None, :], measurement.covariance, 0.0)
    gain = jnp.where(seen[None, :], covariance @ inverted.T @ inverted, 0.0)
    innovation = jnp.where(seen, space.difference(measurement.value, expected), 0.0)
    kept = jnp.where(
        seen[:, None] | seen[None, :], 0.0, measurement.covariance - gain @ covariance.T
    )
    return space.add(expected, gain @ innovation), gain, kept


def _befores(expected: Expectations) -> Gaussian:
    """The beliefs before each step."""
    join = lambda first, others: jnp.concatenate([first[:, None], others[:, :-1]], 1)  # noqa: E731
    return jax.tree.map(join, expected.initial, expected.beliefs)


def _sum(function: Any, *arguments: Any) -> Any:
    """The sum over all steps of all sequences."""
    results = jax.vmap(jax.vmap(function))(*arguments)
    return jax.tree.map(lambda leaf: leaf.sum((0, 1)), results)


def _outer(left: Array, right: Array) -> Array:
    return left[:, None] * right[None, :]


def _targets(part: Linear, cross: Array, target: Array, inputs: Inputs) -> Array:
    """E[y rᵀ] with r = (x, u)."""
    if part.input_matrix is None:
        return cross
    return jnp.concatenate([cross, _outer(target, inputs)], axis=1)


def _squares(part: Linear, second: Array, mean: Array, inputs: Inputs) -> Array:
    """E[r rᵀ]."""
    if part.input_matrix is None:
        return second
    across = _outer(mean, inputs)
    return jnp.block([[second, across], [across.T, _outer(inputs, inputs)]])


def _regressed(part: Linear, targets: Array, squares: Array, wanted: Any) -> Linear:
    """The trained columns of [A B], with the others as they are."""
    matrices = [part.matrix] if part.input_matrix is None else [part.matrix, part.input_matrix]
    flags = [wanted.matrix] if part.input_matrix is None else [wanted.matrix, wanted.input_matrix]
    columns = np.concatenate([np.full(m.shape[1], f) for m, f in zip(matrices, flags, strict=True)])
    weights = jnp.concatenate(matrices, axis=1)
    rest = targets[:, columns] - weights[:, ~columns] @ squares[np.ix_(~columns, columns)]
    solved = jnp.linalg.solve(squares[np.ix_(columns, columns)], rest.T).T
    weights = weights.at[:, columns].set(solved)
    return Linear(*jnp.split(weights, [part.matrix.shape[1]], 1)[: len(matrices)])


def _with_covariance(noise: Any, covariance: Array) -> Any:
    """Constant noise of the same kind with a covariance, or with the closest above its floor."""
    floor = np.asarray(noise.floor, covariance.dtype)
    if isinstance(noise, DiagonalNoise):
        above = jnp.maximum(jnp.diagonal(covariance) - floor, 0.0)
        return dataclasses.replace(noise, bias=jnp.sqrt(above) / noise.unit)
    root = square_root(covariance)
    return dataclasses.replace(noise, bias=root[np.tril_indices(len(floor))] / noise.unit)


def _is_constant(noise: Any) -> bool:
    """True for noise with a closed form: one covariance, without a floor that couples entries."""
    if isinstance(noise, FullNoise):
        return noise.head is None and not any(noise.floor)
    return isinstance(noise, DiagonalNoise) and noise.head is None


def _is_flat(space: Any) -> bool:
    """True for a space without angles and bounds."""
    if isinstance(space, Space):
        return not any(part is not None for part in (*space.periods, *space.bounds))
    return isinstance(space, Euclidean)


def _is_linear(model: StateSpaceModel, name: str, expected: Expectations) -> bool:
    """True if the derivative of a part does not depend on the state, nor the part on a context."""
    if hasattr(getattr(model, name), "bind"):
        return False
    state = jnp.zeros_like(expected.initial.mean[0])
    inputs = jax.tree.map(lambda leaf: leaf[0, 0], expected.inputs)
    part = getattr(unwrap(model), name)
    return not depends(jax.jacfwd(lambda x: part(x, inputs)), state)
