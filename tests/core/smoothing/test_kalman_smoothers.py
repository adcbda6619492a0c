"""Smoothing by Kalman filters: nonlinear models, angles, precision, gradients, draws."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.optimize import least_squares

import filtrax
from filtrax.smoothing import RauchTungStriebel
from oracles.kalman import LinearSystem, simulate
from oracles.smoothing import rauch_tung_striebel
from systems import (
    as_float32,
    beacon_model,
    beacon_prior,
    beacon_trajectory,
    kalman_filters,
    linear_model,
)

EKF, UKF = filtrax.ExtendedKalmanFilter(), filtrax.UnscentedKalmanFilter()
FILTERS = kalman_filters()


def wrapped(angle):
    return (angle + np.pi) % (2 * np.pi) - np.pi


def whitened_residuals(path, trajectory):
    """What a most likely path minimizes, written from the model's equations in NumPy."""
    states = path.reshape(-1, 3)
    residuals = [(states[0] - np.array([0.0, 0.0, 2.5])) / np.sqrt([0.2, 0.2, 0.1])]
    for before, (distance, turn), reading, after in zip(
        states[:-1], trajectory.inputs, trajectory.readings, states[1:], strict=True
    ):
        ahead = distance * np.array([np.cos(before[2]), np.sin(before[2])])
        moved = after - before - np.array([*ahead, turn])
        residuals.append(moved / np.array([0.1, 0.1, 0.05]))
        offset = np.array([6.0, 2.0]) - after[:2]
        bearing = wrapped(reading[1] - np.arctan2(offset[1], offset[0]) + after[2])
        residuals.append(np.array([reading[0] - np.hypot(*offset), bearing]) / [0.2, 0.1])
    return np.concatenate(residuals)


def test_iterated_extended_smoothing_is_nonlinear_least_squares():
    """Rejects a linearization about anything but the last path, and a prior that counts twice."""
    trajectory = beacon_trajectory(15, seed=3)
    known = {"inputs": trajectory.inputs, "smoother": RauchTungStriebel(passes=12)}
    found = filtrax.smooth(EKF, beacon_model(), beacon_prior(), trajectory.readings, **known)
    path = np.concatenate([found.initial.mean[None], found.beliefs.mean])
    unwrapped = path.copy()
    unwrapped[:, 2] = np.unwrap(path[:, 2])
    arrays = jax.tree.map(np.asarray, trajectory)
    start = unwrapped + 0.05 * np.random.default_rng(0).normal(size=unwrapped.shape)
    residuals = functools.partial(whitened_residuals, trajectory=arrays)
    solution = least_squares(residuals, start.ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-12)
    difference = solution.x.reshape(-1, 3) - path
    difference[:, 2] = wrapped(difference[:, 2])
    np.testing.assert_allclose(difference, 0, atol=1e-6)
    information = np.linalg.inv(solution.jac.T @ solution.jac)
    blocks = information.reshape(16, 3, 16, 3)
    for t in range(15):
        np.testing.assert_allclose(found.beliefs.covariance[t], blocks[t + 1, :, t + 1], rtol=1e-4)
        np.testing.assert_allclose(
            found.cross_covariances[t], blocks[t, :, t + 1], rtol=1e-4, atol=1e-6
        )
    once = filtrax.smooth(
        EKF, beacon_model(), beacon_prior(), trajectory.readings, inputs=trajectory.inputs
    )
    assert np.abs(once.beliefs.mean - found.beliefs.mean).max() > 1e-4


@pytest.mark.long
@pytest.mark.parametrize("name", ["ukf", "mcukf"])
def test_posterior_linearization_has_a_fixed_point_with_less_error(name):
    """Rejects passes that never settle; what they settle at is the regression along itself."""
    trajectory = beacon_trajectory(20, seed=1)
    run = functools.partial(filtrax.smooth, FILTERS[name], beacon_model(), beacon_prior())
    run = functools.partial(run, trajectory.readings, inputs=trajectory.inputs, key=jr.key(1))
    paths = [run(smoother=RauchTungStriebel(passes=n)).beliefs.mean for n in (1, 2, 10, 20)]
    steps = [float(jnp.abs(after - paths[-1]).max()) for after in paths[:-1]]
    assert steps[0] > steps[1] > 1e3 * steps[2]


@pytest.mark.parametrize("name", [pytest.param("ekf", marks=pytest.mark.long), "ukf"])
def test_smoothing_turns_with_the_world(name):
    """The half turn is nowhere: rejects a difference of angles that does not wrap."""
    trajectory = beacon_trajectory(25, seed=2)
    shift = 1.2

    class Turned(eqx.Module):
        def __call__(self, state, inputs):
            return beacon_model().process(state.at[2].add(shift), inputs).at[2].add(-shift)

    def see(state, inputs):
        return beacon_model().observe(state.at[2].add(shift), inputs)

    prior = beacon_prior()
    turned = filtrax.Gaussian(prior.mean.at[2].add(-shift), prior.covariance)
    model = dataclasses.replace(beacon_model(), process=Turned(), observe=see)
    readings, inputs = trajectory.readings, trajectory.inputs
    first = filtrax.smooth(FILTERS[name], beacon_model(), prior, readings, inputs=inputs)
    other = filtrax.smooth(FILTERS[name], model, turned, readings, inputs=inputs)
    assert (np.abs(np.diff(first.beliefs.mean[:, 2])) > 6).any()
    difference = np.array(first.beliefs.mean - other.beliefs.mean)
    difference[:, 2] = wrapped(difference[:, 2] - shift)
    np.testing.assert_allclose(difference, 0, atol=1e-9)
    np.testing.assert_allclose(first.beliefs.covariance, other.beliefs.covariance, atol=1e-9)


def test_means_stay_inside_the_bounds():
    """A reading far outside pulls all smoothed means to the bound, and no further."""
    space = filtrax.Space(("level",), bounds={"level": (0.0, 1.0)})
    model = filtrax.StateSpaceModel(
        state_space=space,
        process=lambda state, inputs: state,
        process_noise=filtrax.constant_noise([0.1]),
        observe=lambda state, inputs: state,
        sensor=filtrax.DirectSensor(filtrax.constant_noise([0.1])),
    )
    readings = jnp.linspace(0.5, 3.0, 20)[:, None]
    for filt in (EKF, UKF):
        found = filtrax.smooth(filt, model, filtrax.Gaussian([0.5], [[0.1]]), readings)
        assert (found.beliefs.mean >= 0).all()
        assert (found.beliefs.mean <= 1).all()
        assert found.beliefs.mean[-1] == 1


@pytest.mark.long
def test_padding_changes_nothing():
    """Sequences of unequal lengths are one batch: rejects padded steps that are read."""
    trajectory = beacon_trajectory(12)
    longer = filtrax.trajectory.pad(trajectory, 17)
    model, prior = beacon_model(), beacon_prior()
    short = filtrax.smooth(UKF, model, prior, trajectory.readings, inputs=trajectory.inputs)
    known = {"inputs": longer.inputs, "observed": longer.observed}
    found = filtrax.smooth(UKF, model, prior, longer.readings, **known)
    np.testing.assert_allclose(found.beliefs.mean[:12], short.beliefs.mean, atol=1e-10)
    np.testing.assert_allclose(found.beliefs.covariance[:12], short.beliefs.covariance, atol=1e-10)
    np.testing.assert_allclose(found.log_likelihood, short.log_likelihood, rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["ukf", *(pytest.param(n, marks=pytest.mark.long) for n in FILTERS if n != "ukf")]
)
def test_the_forward_pass_is_the_filter(name):
    """The last smoothed belief is the filtered one, and the likelihood and diagnostics are its."""
    trajectory = beacon_trajectory(6)
    arguments = (FILTERS[name], beacon_model(), beacon_prior(), trajectory.readings)
    known = {"inputs": trajectory.inputs, "key": jr.key(4), "info": True}
    observed = jnp.asarray([True, False, True, True, True, True])
    known["observed"] = jnp.stack([observed, observed[::-1]], axis=1)
    filtered, smoothed = filtrax.run(*arguments, **known), filtrax.smooth(*arguments, **known)
    last = jax.tree.map(lambda leaf: leaf[-1], (filtered.beliefs, smoothed.beliefs))
    np.testing.assert_allclose(last[1].mean, last[0].mean, atol=1e-10)
    np.testing.assert_allclose(last[1].covariance, last[0].covariance, atol=1e-10)
    for field in ("log_likelihood", "innovation", "innovation_covariance", "gain"):
        pair = (getattr(result.info, field) for result in (smoothed, filtered))
        np.testing.assert_allclose(*pair, atol=1e-9)


def still(size, seen, wide, noise=0.0):
    """Constant states, of which the first are seen through a mixing matrix."""
    rng = np.random.default_rng(5)
    return LinearSystem(
        F=np.eye(size) + 0.01 * rng.normal(size=(size, size)),
        G=np.zeros((size, 2)),
        H=np.eye(seen, size),
        Q=noise * np.diag(np.arange(size) == size - 1).astype(float),
        R=np.eye(seen),
        mean=np.zeros(size),
        covariance=wide * np.eye(size),
    )


PRECISION = {
    "Q = 0, half observed": (still(4, 2, 1e6), 1e-3),
    "a wide prior": (still(2, 2, 1e8, 0.1), 1e-4),
    "noise of one component": (still(4, 2, 10.0, 0.1), 1e-3),
    "a prior without variance": (still(3, 2, 0.0, 0.1), 1e-4),
}


@pytest.mark.parametrize(
    "name", [n if "half" in n else pytest.param(n, marks=pytest.mark.long) for n in PRECISION]
)
def test_single_precision_is_close_to_double(name):
    """Rejects an inverse of a predicted covariance that is singular, or nearly so."""
    system, tolerance = PRECISION[name]
    drawn = dataclasses.replace(system, covariance=np.minimum(system.covariance, 10.0))
    controls, _, observations = simulate(drawn, np.random.default_rng(0), 200)
    results = []
    for dtype in (jnp.float64, jnp.float32):
        model, prior = linear_model(system, dtype)
        arrays = (jnp.asarray(leaf, dtype) for leaf in (observations, controls))
        readings, inputs = arrays
        results.append(filtrax.smooth(EKF, model, prior, readings, inputs=inputs))
    double, single = results
    std = np.sqrt(np.maximum(np.diagonal(double.beliefs.covariance, axis1=1, axis2=2), 0))
    scale = np.where(std > 1e-9, std, 1.0)
    error = np.abs(np.asarray(single.beliefs.mean, float) - double.beliefs.mean) / scale
    assert error.max() < tolerance
    found = np.sqrt(np.diagonal(np.asarray(single.beliefs.covariance, float), axis1=1, axis2=2))
    np.testing.assert_allclose(found, std, rtol=tolerance, atol=1e-6)
    assert single.info.finite.all()


def test_singular_noise_equals_the_textbook():
    """Q of rank one in double precision: the oracle's inverse exists because of the prior."""
    system = still(3, 2, 5.0, 0.1)
    controls, _, observations = simulate(system, np.random.default_rng(1), 15)
    seen = np.ones(observations.shape, bool)
    means, covariances, cross = rauch_tung_striebel(system, controls, observations, seen)
    model, prior = linear_model(system)
    found = filtrax.smooth(UKF, model, prior, jnp.asarray(observations), inputs=controls)
    np.testing.assert_allclose(found.beliefs.mean, means[1:], atol=1e-8)
    np.testing.assert_allclose(found.beliefs.covariance, covariances[1:], atol=1e-8)
    np.testing.assert_allclose(found.cross_covariances, cross, atol=1e-8)


def summary(found):
    """A number of all that smoothing returns, with unequal weights."""
    leaves = [found.beliefs.mean, found.beliefs.covariance, found.cross_covariances]
    leaves += [found.initial.mean, found.initial.covariance, found.log_likelihood]
    return sum((jnp.sin(jnp.arange(1.0, leaf.size + 1)) * leaf.ravel()).sum() for leaf in leaves)


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        pytest.param("ekf", 1, marks=pytest.mark.long),
        ("ukf", 1),
        pytest.param("ekf", 2, marks=pytest.mark.long),
        pytest.param("ukf", 2, marks=pytest.mark.long),
        pytest.param("iterated_ekf", 1, marks=pytest.mark.long),
        pytest.param("mcukf", 1, marks=pytest.mark.long),
    ],
)
def test_gradients_equal_finite_differences(name, passes):
    """Rejects a tangent of a factor that does not belong to its coordinates."""
    trajectory = beacon_trajectory(6)
    observed = jnp.asarray([[1, 1], [1, 0], [0, 0], [1, 1], [0, 1], [1, 1]], bool)

    @jax.jit
    def value(stds):
        model = beacon_model(tuple(stds[:3]), tuple(stds[3:5]))
        prior = filtrax.Gaussian(beacon_prior().mean + stds[5:8], beacon_prior().covariance)
        return summary(
            filtrax.smooth(
                FILTERS[name],
                model,
                prior,
                trajectory.readings,
                inputs=trajectory.inputs,
                observed=observed,
                key=jr.key(0),
                smoother=RauchTungStriebel(passes=passes),
            )
        )

    at = jnp.asarray([0.1, 0.12, 0.05, 0.2, 0.1, 0.0, 0.1, -0.1])
    gradient = jax.jit(jax.grad(value))(at)
    for number, step in enumerate(1e-5 * np.eye(len(at))):
        difference = (value(at + step) - value(at - step)) / 2e-5
        np.testing.assert_allclose(gradient[number], difference, rtol=2e-5, atol=1e-5)


@pytest.mark.long
def test_draws_have_the_smoothed_moments():
    """Within four standard errors, pairs included: rejects states that are drawn on their own."""
    trajectory = beacon_trajectory(5, seed=7)
    arguments = (EKF, beacon_model(), beacon_prior(), trajectory.readings)
    smoothed = filtrax.smooth(*arguments, inputs=trajectory.inputs)
    count = 20_000
    known = {"inputs": trajectory.inputs, "num_paths": count}
    paths = filtrax.sample_path(*arguments, **known, key=jr.key(0))
    path = np.concatenate([paths.initial[:, None], paths.states], axis=1)
    beliefs = [smoothed.initial.mean[None], smoothed.beliefs.mean]
    offsets = path - np.concatenate(beliefs)
    offsets[..., 2] = wrapped(offsets[..., 2])
    std = np.sqrt(np.diagonal(smoothed.beliefs.covariance, axis1=1, axis2=2))
    assert (np.abs(offsets.mean(0)[1:]) < 4 * std / np.sqrt(count)).all()
    cross = np.einsum("nti,ntj->tij", offsets[:, :-1], offsets[:, 1:]) / count
    pairs = np.concatenate([np.sqrt(np.diag(smoothed.initial.covariance))[None], std])
    scale = pairs[:-1, :, None] * pairs[1:, None, :]
    assert (np.abs(cross - smoothed.cross_covariances) < 4 * 1.5 * scale / np.sqrt(count)).all()


@pytest.mark.long
def test_single_precision_stays_single():
    trajectory = as_float32(beacon_trajectory(4))
    model, prior = as_float32((beacon_model(), beacon_prior()))
    found = filtrax.smooth(UKF, model, prior, trajectory.readings, inputs=trajectory.inputs)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found.beliefs))
    assert found.cross_covariances.dtype == jnp.float32
