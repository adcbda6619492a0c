"""Recordings in chunks against the whole of them."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax.smoothing import Chunk, likelihood_of_chunks, run_chunks, smooth_chunks
from systems import beacon_model, beacon_prior, beacon_trajectory

EKF = filtrax.ExtendedKalmanFilter()
TRAJECTORY = beacon_trajectory(11)
OBSERVED = jnp.arange(11) % 4 != 2
KNOWN = {"inputs": TRAJECTORY.inputs, "observed": OBSERVED}
ENDS = [0, 4, 8, 11]


def chunks():
    return [
        Chunk(TRAJECTORY.readings[a:b], inputs=TRAJECTORY.inputs[a:b], observed=OBSERVED[a:b])
        for a, b in itertools.pairwise(ENDS)
    ]


def test_filtering_in_chunks_is_run_and_reads_nothing_early():
    whole = filtrax.run(EKF, beacon_model(), beacon_prior(), TRAJECTORY.readings, **KNOWN)
    read, done = [], []

    def recording():
        for number, chunk in enumerate(chunks()):
            read.append(number)
            yield chunk

    results = []
    arguments = (EKF, beacon_model(), beacon_prior(), recording())
    for result in run_chunks(*arguments, callback=done.append):
        results.append(result)
        assert read == list(range(len(results)))
    assert done == ENDS[1:]
    means = jnp.concatenate([result.beliefs.mean for result in results])
    np.testing.assert_allclose(means, whole.beliefs.mean, atol=1e-12)
    total = sum(result.log_likelihood for result in results)
    np.testing.assert_allclose(total, whole.log_likelihood, rtol=1e-12)
    rest = list(run_chunks(EKF, beacon_model(), None, chunks()[1:], start=results[0].last))
    np.testing.assert_array_equal(rest[-1].beliefs.mean, results[-1].beliefs.mean)


@pytest.mark.long
def test_particles_go_on_where_they_were():
    """Their belief is no Gaussian: rejects a chunk that starts from moments."""
    filt = filtrax.ParticleFilter(num_particles=50)
    parts = list(run_chunks(filt, beacon_model(), beacon_prior(), chunks(), key=jr.key(0)))
    assert parts[0].last.states.shape == (50, 3)
    again = run_chunks(
        filt, beacon_model(), None, chunks()[1:2], start=parts[0].last, key=jr.key(9)
    )
    assert float(next(again).beliefs.age[0]) >= 0


def test_smoothing_in_chunks_is_smooth():
    """Rejects coordinates that are lost from one chunk to the one before it."""
    whole = filtrax.smooth(EKF, beacon_model(), beacon_prior(), TRAJECTORY.readings, **KNOWN)
    parts = list(smooth_chunks(EKF, beacon_model(), beacon_prior(), chunks()))[::-1]
    for name in ("mean", "covariance"):
        joined = jnp.concatenate([getattr(part.beliefs, name) for part in parts])
        np.testing.assert_allclose(joined, getattr(whole.beliefs, name), atol=1e-12)
    cross = jnp.concatenate([part.cross_covariances for part in parts])
    np.testing.assert_allclose(cross, whole.cross_covariances, atol=1e-12)
    np.testing.assert_allclose(parts[0].initial.mean, whole.initial.mean, atol=1e-12)
    np.testing.assert_allclose(parts[1].initial.mean, whole.beliefs.mean[3], atol=1e-12)


@pytest.mark.long
def test_the_gradient_in_chunks_is_that_of_the_whole():
    """Rejects a gradient that stops at the start of a chunk where it must not."""
    model = beacon_model()

    def value(model):
        found = filtrax.run(EKF, model, beacon_prior(), TRAJECTORY.readings, **KNOWN)
        return found.log_likelihood

    expected = eqx.filter_grad(value)(model)
    arguments = (EKF, model, beacon_prior(), chunks())
    total, gradient = likelihood_of_chunks(*arguments)
    np.testing.assert_allclose(total, value(model), rtol=1e-12)
    for left, right in zip(*map(jax.tree.leaves, (gradient, expected)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)
    cut = likelihood_of_chunks(*arguments, truncated=True)[1]
    one = likelihood_of_chunks(*arguments[:3], chunks()[:1])[1]
    two = likelihood_of_chunks(*arguments[:3], chunks()[:1], truncated=True)[1]
    assert not np.allclose(cut.process_noise.bias, gradient.process_noise.bias, rtol=1e-3)
    np.testing.assert_allclose(one.process_noise.bias, two.process_noise.bias, rtol=1e-12)


def test_what_are_no_chunks_says_so():
    with pytest.raises(TypeError, match=r"`chunks` must hold `Chunk\(readings"):
        next(run_chunks(EKF, beacon_model(), beacon_prior(), [TRAJECTORY.readings]))
    with pytest.raises(ValueError, match="needs either `prior` or `start`"):
        next(run_chunks(EKF, beacon_model(), None, chunks()))
    with pytest.raises(TypeError, match="`smooth_chunks` needs a Kalman filter"):
        next(smooth_chunks(filtrax.ParticleFilter(), beacon_model(), beacon_prior(), chunks()))
