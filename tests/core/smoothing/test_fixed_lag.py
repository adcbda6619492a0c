"""Fixed lag, step by step and over a recording, against smoothing of the readings so far."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax.smoothing import FixedLag
from systems import all_filters, beacon_model, beacon_prior, beacon_trajectory

EKF, UKF = filtrax.ExtendedKalmanFilter(), filtrax.UnscentedKalmanFilter()
STEPS, LAG, CHECKED = 7, 3, (2, 5, 7)
OBSERVED = jnp.asarray([[1, 1], [1, 0], [0, 0], [1, 1], [0, 1], [1, 1], [1, 1]], bool)


def batches(filt, trajectory):
    """Smoothed beliefs of states 0 to t given the readings up to t, for some t."""
    known = {"inputs": trajectory.inputs, "observed": OBSERVED}
    for end in CHECKED:
        readings, given = jax.tree.map(lambda a, end=end: a[:end], (trajectory.readings, known))
        found = filtrax.smooth(filt, beacon_model(), beacon_prior(), readings, **given)
        means = jnp.concatenate([found.initial.mean[None], found.beliefs.mean])
        covariances = [found.initial.covariance[None], found.beliefs.covariance]
        yield end, (means, jnp.concatenate(covariances))


@pytest.mark.parametrize("filt", [EKF, pytest.param(UKF, marks=pytest.mark.long)])
def test_online_and_recordings_equal_smoothing_of_the_readings_so_far(filt):
    """Rejects a window that is off by a step, and one that forgets the mask."""
    trajectory = beacon_trajectory(STEPS)
    loop = filtrax.online(filt, beacon_model(), lag=LAG)
    belief = loop.init(beacon_prior())
    readings, known = trajectory.readings, {"inputs": trajectory.inputs, "observed": OBSERVED}
    arguments = (filt, beacon_model(), beacon_prior(), readings)
    lagged = filtrax.smooth(*arguments, **known, smoother=FixedLag(LAG))
    filtered = filtrax.run(*arguments, **known)
    expected = dict(batches(filt, trajectory))
    for t in range(STEPS):
        given = {name: value[t] for name, value in known.items()}
        belief, info, earlier = loop.step(belief, readings[t], **given)
        if t + 1 not in CHECKED:
            continue
        means, covariances = expected[t + 1]
        state = max(t + 1 - LAG, 0)
        np.testing.assert_allclose(earlier.mean, means[state], atol=1e-9)
        np.testing.assert_allclose(earlier.covariance, covariances[state], atol=1e-9)
        np.testing.assert_allclose(belief.now.mean, filtered.beliefs.mean[t], atol=1e-9)
        np.testing.assert_allclose(info.log_likelihood, filtered.info.log_likelihood[t], atol=1e-9)
        for number in range(1, t + 2):
            if min(number + LAG, STEPS) == t + 1:
                own = jax.tree.map(lambda leaf, number=number: leaf[number - 1], lagged.beliefs)
                np.testing.assert_allclose(own.mean, means[number], atol=1e-9)
                np.testing.assert_allclose(own.covariance, covariances[number], atol=1e-9)


@pytest.mark.long
def test_the_longest_lag_is_the_smoother_and_none_is_the_filter():
    trajectory = beacon_trajectory(STEPS)
    arguments = (EKF, beacon_model(), beacon_prior(), trajectory.readings)
    known = {"inputs": trajectory.inputs}
    longest = filtrax.smooth(*arguments, **known, smoother=FixedLag(STEPS))
    smoothed = filtrax.smooth(*arguments, **known)
    np.testing.assert_allclose(longest.beliefs.mean, smoothed.beliefs.mean, atol=1e-12)
    np.testing.assert_allclose(longest.cross_covariances, smoothed.cross_covariances, atol=1e-12)
    none = filtrax.smooth(*arguments, **known, smoother=FixedLag(0))
    filtered = filtrax.run(*arguments, **known)
    np.testing.assert_allclose(none.beliefs.covariance, filtered.beliefs.covariance, atol=1e-12)


@pytest.mark.long
def test_a_lagged_step_can_be_exported():
    trajectory = beacon_trajectory(2)
    loop = filtrax.online(EKF, beacon_model(), lag=2)
    belief = loop.init(beacon_prior())
    reading, inputs = trajectory.readings[0], trajectory.inputs[0]
    exported = loop.export(belief, reading, inputs=inputs)
    given = filtrax.filters.as_dicts(belief), reading, inputs, jnp.asarray(True), None
    _, _, earlier = exported.call(*given)
    expected = loop.step(belief, reading, inputs=inputs)[2]
    np.testing.assert_allclose(earlier["mean"], expected.mean, atol=1e-12)


def smoothed(filt, **known):
    trajectory = beacon_trajectory(3)
    arguments = (beacon_model(), beacon_prior(), trajectory.readings)
    return filtrax.smooth(filt, *arguments, inputs=trajectory.inputs, **known)


def on_the_host(state, inputs):
    del inputs
    return jax.pure_callback(lambda x: x, state, state)


FILTERS = all_filters()
BAD = {
    "a recurrent filter": (
        TypeError,
        lambda: smoothed(FILTERS["lstm"]),
        "RecurrentFilter has no smoother. The filters that have one are AbstractSigmaPointFilter, "
        "ExtendedKalmanFilter, IMMFilter, ParticleFilter",
    ),
    "a lag longer than the sequence": (
        ValueError,
        lambda: smoothed(EKF, smoother=FixedLag(4)),
        "`lag` must be at most the 3 steps of the sequence, got 4",
    ),
    "a negative lag": (ValueError, lambda: FixedLag(-1), "`lag` must be a whole number"),
    "a lag of nothing online": (
        ValueError,
        lambda: filtrax.online(EKF, beacon_model(), lag=0),
        "`lag` must be a whole number, at least 1",
    ),
    "particles with a lag": (
        TypeError,
        lambda: filtrax.online(FILTERS["pf"], beacon_model(), lag=2),
        "`lag` needs a Kalman filter .*, got ParticleFilter",
    ),
    "the paper's form": (
        ValueError,
        lambda: smoothed(FILTERS["ukf_paper"]),
        "RauchTungStriebel needs `redraw=True` of UnscentedKalmanFilter",
    ),
    "a Kalman smoother of particles": (
        TypeError,
        lambda: smoothed(FILTERS["pf"], smoother=filtrax.smoothing.RauchTungStriebel()),
        "RauchTungStriebel needs a Kalman filter",
    ),
    "a particle smoother of a Kalman filter": (
        TypeError,
        lambda: smoothed(EKF, smoother=filtrax.smoothing.MarginalSmoother()),
        "MarginalSmoother smooths a filter that is an ParticleFilter",
    ),
    "a process without a derivative": (
        TypeError,
        lambda: filtrax.smooth(
            EKF,
            dataclasses.replace(beacon_model(), process=on_the_host),
            beacon_prior(),
            jnp.zeros((3, 2)),
            inputs=jnp.zeros((3, 2)),
        ),
        "ExtendedKalmanFilter smooths with the derivative of `process`, and JAX cannot compute it",
    ),
    "no pass": (
        ValueError,
        lambda: filtrax.smoothing.RauchTungStriebel(passes=0),
        "`passes` must be a whole number, at least 1",
    ),
    "no path": (
        ValueError,
        lambda: filtrax.sample_path(
            EKF, beacon_model(), beacon_prior(), jnp.zeros((3, 2)), num_paths=0, key=jr.key(0)
        ),
        "`num_paths` must be a whole number",
    ),
    "draws without a key": (
        ValueError,
        lambda: smoothed(FILTERS["pf"], smoother=filtrax.smoothing.BackwardSimulation(3)),
        "draws: give `key=`",
    ),
    "paths of a fixed lag": (
        TypeError,
        lambda: filtrax.sample_path(
            EKF,
            beacon_model(),
            beacon_prior(),
            jnp.zeros((3, 2)),
            inputs=jnp.zeros((3, 2)),
            num_paths=1,
            key=jr.key(0),
            smoother=FixedLag(1),
        ),
        "`FixedLag` has no trajectories",
    ),
    "commands in the place of a keyword": (
        TypeError,
        lambda: filtrax.smooth(
            EKF, beacon_model(), beacon_prior(), jnp.zeros((3, 2)), jnp.zeros((3, 2))
        ),
        r"must be given by name, got 5 in a row: smooth\(filter",
    ),
    "readings that are not finite": (
        ValueError,
        lambda: filtrax.smooth(
            EKF, beacon_model(), beacon_prior(), jnp.full((3, 2), jnp.nan), inputs=jnp.zeros((3, 2))
        ),
        "`readings` must be finite where they are observed",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_smoothed_says_why(name):
    kind, call, message = BAD[name]
    with pytest.raises(kind, match=message):
        call()
