"""Scans in parallel over time against the steps in turn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
from filtrax.smoothing import ParallelInTime, RauchTungStriebel, Sequence, _smooth, run_parallel
from oracles.kalman import random_system, simulate
from systems import beacon_model, beacon_prior, beacon_trajectory, linear_model

EKF, UKF = filtrax.ExtendedKalmanFilter(), filtrax.UnscentedKalmanFilter()


def problem(steps=70, sizes=(3, 2), *, singular=False):
    rng = np.random.default_rng(4)
    system = random_system(rng, *sizes)
    controls, _, readings = simulate(system, rng, steps)
    seen = rng.random(readings.shape) < 0.7
    seen[[0, steps // 2]] = False
    model, prior = linear_model(system)
    if singular:
        noise = filtrax.constant_noise(jnp.asarray([0.0, 0.5, 0.0]))
        model = filtrax.StateSpaceModel(model.process, noise, model.observe, model.sensor)
    readings = jnp.asarray(np.where(seen, readings, np.nan))
    return (model, prior, readings), {
        "inputs": jnp.asarray(controls),
        "observed": jnp.asarray(seen),
    }


def close(left, right, tolerance=1e-9):
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("singular", [True, pytest.param(False, marks=pytest.mark.long)])
def test_equals_the_steps_in_turn(singular):
    """Missing readings from the first step on, and noise of one component: rejects an inverse."""
    arguments, known = problem(singular=singular)
    found = filtrax.smooth(EKF, *arguments, **known, smoother=ParallelInTime())
    expected = filtrax.smooth(EKF, *arguments, **known, smoother=RauchTungStriebel())
    close(found.beliefs.mean, expected.beliefs.mean)
    close(found.beliefs.covariance, expected.beliefs.covariance)
    close(found.cross_covariances, expected.cross_covariances)
    close(found.initial.mean, expected.initial.mean)
    close(found.initial.covariance, expected.initial.covariance)
    close(found.info.log_likelihood, expected.info.log_likelihood)
    filtered, scanned = (
        filtrax.run(EKF, *arguments, **known),
        run_parallel(EKF, *arguments, **known),
    )
    close(scanned.beliefs.mean, filtered.beliefs.mean)
    close(scanned.beliefs.covariance, filtered.beliefs.covariance)
    close(scanned.log_likelihood, filtered.log_likelihood)


def summary(found):
    leaves = [found.beliefs.mean, found.beliefs.covariance, found.cross_covariances]
    leaves += [found.initial.mean, found.initial.covariance, found.log_likelihood]
    return sum((jnp.sin(jnp.arange(1.0, a.size + 1)) * a.ravel()).sum() for a in leaves)


@pytest.mark.long
def test_has_the_gradient_of_the_steps_in_turn():
    """Rejects tangents of roots whose coordinates differ between scan and links."""
    (model, prior, readings), known = problem(40)

    def value(model, smoother):
        return summary(filtrax.smooth(EKF, model, prior, readings, **known, smoother=smoother))

    found, expected = (
        eqx.filter_grad(value)(model, smoother)
        for smoother in (ParallelInTime(), RauchTungStriebel())
    )
    for left, right in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        close(left, right, 1e-8)


@pytest.mark.long
@pytest.mark.parametrize("filt", [EKF, UKF])
def test_passes_lead_to_the_same_path_as_those_in_turn(filt):
    """Nonlinear, with angles across the half turn: rejects offsets that do not wrap."""
    trajectory = beacon_trajectory(15, seed=3)
    arguments = (filt, beacon_model(), beacon_prior(), trajectory.readings)
    known = {"inputs": trajectory.inputs}
    found = filtrax.smooth(*arguments, **known, smoother=ParallelInTime(passes=15))
    expected = filtrax.smooth(*arguments, **known, smoother=RauchTungStriebel(passes=12))
    close(found.beliefs.mean, expected.beliefs.mean, 1e-6)
    close(found.beliefs.covariance, expected.beliefs.covariance, 1e-6)


@pytest.mark.long
def test_single_precision_is_close_to_double():
    (model, prior, readings), known = problem(100)
    double = filtrax.smooth(EKF, model, prior, readings, **known, smoother=ParallelInTime())
    cast = lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == float else leaf  # noqa: E731
    (model, prior, readings), known = jax.tree.map(cast, ((model, prior, readings), known))
    single = filtrax.smooth(EKF, model, prior, readings, **known, smoother=ParallelInTime())
    std = np.sqrt(np.diagonal(double.beliefs.covariance, axis1=1, axis2=2))
    assert np.abs((np.asarray(single.beliefs.mean, float) - double.beliefs.mean) / std).max() < 1e-4


def test_is_chosen_for_long_sequences_of_linear_models_on_a_gpu_alone(monkeypatch):
    """The choice, not the program: rejects one that a CPU, or a nonlinear model, would get."""

    (model, prior, readings), known = problem()
    measurements = filtrax.Measurement(readings, jnp.broadcast_to(jnp.eye(2), (70, 2, 2)))
    linear = (model, prior, Sequence(measurements, known["inputs"], None))
    bent = (beacon_model(), beacon_prior(), Sequence(measurements, known["inputs"], None))
    chosen = lambda given: type(_smooth._chosen(EKF, *given)).__name__  # noqa: E731
    monkeypatch.setattr(_smooth, "FEWEST_STEPS", 70)
    assert chosen(linear) == "RauchTungStriebel"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert (chosen(linear), chosen(bent)) == ("ParallelInTime", "RauchTungStriebel")
    monkeypatch.setattr(_smooth, "FEWEST_STEPS", 71)
    assert chosen(linear) == "RauchTungStriebel"


def test_a_nonlinear_model_needs_passes():
    trajectory = beacon_trajectory(3)
    with pytest.raises(ValueError, match=r"as in `ParallelInTime\(passes=5\)`"):
        filtrax.smooth(
            EKF,
            beacon_model(),
            beacon_prior(),
            trajectory.readings,
            inputs=trajectory.inputs,
            smoother=ParallelInTime(),
        )
