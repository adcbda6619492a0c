"""What every filter promises, checked for all of them on a system with angles."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax.filters import AbstractBayesFilter, filter_trajectory
from filtrax.sensors import sense
from systems import (
    POLAR,
    POSE,
    all_filters,
    as_float32,
    beacon_model,
    beacon_trajectory,
    switching_beacon_model,
)

FILTERS = all_filters()
STEPS = 8
EVERYTHING = jnp.ones((STEPS, 2), bool)
MASK = jnp.asarray([[1, 1], [0, 0], [1, 0], [1, 1], [0, 1], [0, 0], [1, 1], [1, 1]], bool)

# Tests of one filter share its compiled programs, so they run in one process.
FOR_ALL_FILTERS = [
    pytest.param(filt, id=name, marks=pytest.mark.xdist_group(name))
    for name, filt in FILTERS.items()
]
MAIN_KINDS = ("ekf", "ukf", "mcukf", "imm", "pf", "lstm")
for_all_filters = pytest.mark.parametrize("filt", FOR_ALL_FILTERS)
for_bayes_filters = pytest.mark.parametrize(
    "filt", [p for p in FOR_ALL_FILTERS if isinstance(p.values[0], AbstractBayesFilter)]
)
# Filters that know nothing of modes see the model without them.
MODEL = switching_beacon_model()
TRAJECTORY = beacon_trajectory(STEPS)
step = eqx.filter_jit(lambda filt, *inputs, key: filt.step(MODEL, *inputs, key=key))


def run(filt, readings, observed=EVERYTHING):
    result = filtrax.run(
        filt,
        MODEL,
        TRAJECTORY.prior,
        readings,
        inputs=TRAJECTORY.inputs,
        observed=observed,
        key=jr.key(1),
        info=True,
    )
    return result.beliefs, result.info


@for_all_filters
def test_shapes_types_and_finite_values_at_a_heading_that_wraps(filt):
    beliefs, info = run(filt, TRAJECTORY.readings)
    moments = jax.vmap(lambda belief: belief.moments(POSE))(beliefs)
    assert moments.mean.shape == (STEPS, 3)
    assert moments.covariance.shape == (STEPS, 3, 3)
    assert moments.mean.dtype == moments.covariance.dtype == jnp.float64
    assert info.finite.all()
    assert np.linalg.eigvalsh(moments.covariance).min() > 0
    assert (np.abs(moments.mean[:, 2]) <= np.pi).all()
    if isinstance(filt, AbstractBayesFilter):  # an untrained network tracks nothing
        # A filter that subtracts headings by hand loses the track where they jump by 2π.
        assert np.abs(np.diff(TRAJECTORY.states[:, 2])).max() > np.pi
        assert filtrax.metrics.mean_distance(beliefs, TRAJECTORY.states, POSE) < 1.0


@for_all_filters
def test_single_precision_stays_single(filt):
    filt, model, trajectory = as_float32((filt, MODEL, TRAJECTORY))
    result = eqx.filter_eval_shape(filter_trajectory, filt, model, trajectory, key=jr.key(0))
    for leaf in jax.tree.leaves(result):
        assert leaf.dtype in (jnp.float32, bool, int)


@for_all_filters
def test_a_run_is_its_steps_one_after_another(filt):
    """Rejects a loop that hands steps the wrong inputs, reading or key."""
    beliefs, _ = run(filt, TRAJECTORY.readings)
    sensor_key, init_key, key = jr.split(jr.key(1), 3)
    step_keys = jr.split(key, STEPS)
    belief = filt.init(MODEL, TRAJECTORY.prior, key=init_key)
    for t in range(STEPS):
        inputs, reading = TRAJECTORY.inputs[t], TRAJECTORY.readings[t]
        measurement = sense(MODEL.sensor, reading, EVERYTHING[t], inputs, None, key=sensor_key)
        belief, _ = step(filt, belief, measurement, inputs, key=step_keys[t])
        for one, many in zip(jax.tree.leaves(belief), jax.tree.leaves(beliefs), strict=True):
            np.testing.assert_allclose(many[t], one, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("filt", [p for p in FOR_ALL_FILTERS if p.id in MAIN_KINDS])
def test_mapped_equals_looped(filt):
    readings = jnp.stack([TRAJECTORY.readings, TRAJECTORY.readings[::-1]])
    together, _ = jax.vmap(lambda readings: run(filt, readings))(readings)
    for i in range(2):
        alone, _ = run(filt, readings[i])
        for one, many in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(many[i], one, rtol=1e-8, atol=1e-10)


@for_bayes_filters
def test_a_step_without_observation_is_a_prediction(filt):
    belief = filt.init(MODEL, TRAJECTORY.prior, key=jr.key(0))
    inputs, (predict_key, _) = TRAJECTORY.inputs[0], jr.split(jr.key(3))
    predicted = eqx.filter_jit(filt.predict)(MODEL, belief, inputs, key=predict_key)
    predicted = getattr(predicted, "belief", predicted)
    nothing = filtrax.Measurement(jnp.zeros(2), jnp.eye(2), observed=jnp.zeros(2, bool))
    updated, info = step(filt, belief, nothing, inputs, key=jr.key(3))
    expected, found = predicted.moments(POSE), updated.moments(POSE)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-12, atol=1e-12)
    assert info.log_likelihood == pytest.approx(0.0, abs=1e-12)


@for_all_filters
def test_what_is_not_observed_may_hold_anything(filt):
    """Rejects NaN that leaks out of the mask, and a mask that only hides NaN."""
    spoilt = run(filt, jnp.where(MASK, TRAJECTORY.readings, jnp.nan), MASK)
    other = run(filt, jnp.where(MASK, TRAJECTORY.readings, 1e6), MASK)
    assert spoilt[1].finite.all()
    for a, b in zip(jax.tree.leaves(spoilt), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_online_steps_equal_the_batch_run_for_filters_without_chance():
    for name in ("ekf", "ukf", "ukf_paper"):
        filt = FILTERS[name]
        beliefs, _ = run(filt, TRAJECTORY.readings, MASK)
        loop = filtrax.online(filt, MODEL)
        belief = loop.init(TRAJECTORY.prior, key=jr.key(0))
        for t in range(STEPS):
            belief, info = loop.step(
                belief,
                np.where(MASK[t], TRAJECTORY.readings[t], np.nan),
                inputs=np.asarray(TRAJECTORY.inputs[t]),
                observed=np.asarray(MASK[t]),
                key=jr.key(t),
            )
            np.testing.assert_allclose(belief.mean, beliefs.mean[t], rtol=1e-10, atol=1e-12)
            assert info.finite


def test_heteroscedastic_process_noise_is_taken_at_each_particle_and_sigma_point():
    """Rejects one Q at the mean for all points."""

    def head(state, inputs):
        del inputs
        return jnp.stack([state[0], 0.0 * state[0], 0.0 * state[0]])

    noise = filtrax.heteroscedastic_noise(head, jnp.asarray([0.5, 0.1, 0.1]))
    model = eqx.tree_at(lambda m: m.process_noise, beacon_model(), noise)
    prior = filtrax.Gaussian(jnp.zeros(3), jnp.diag(jnp.asarray([4.0, 0.1, 1e-6])))
    # std(x) = 0.5 + x with x ~ N(0, 4): the expected variance is 0.25 + 4, at the mean 0.25.
    expected = 4.0 + 0.25 + 4.0
    inputs = jnp.zeros(2)
    filters = {
        filtrax.UnscentedKalmanFilter(): 1e-9,
        filtrax.MonteCarloUnscentedKalmanFilter(400): 1e-9,
        filtrax.ParticleFilter(200_000): 0.1,
    }
    for filt, tolerance in filters.items():

        @jax.jit
        def predict(key, filt=filt):
            belief = filt.init(model, prior, key=key)
            return filt.predict(model, belief, inputs, key=key).moments(POSE)

        predicted = predict(jr.key(0))
        assert predicted.covariance[0, 0] == pytest.approx(expected, abs=tolerance)


def test_observation_angles_are_averaged_about_the_centre():
    """A bearing of ±π seen by sigma points on both sides: their plain mean would be near zero."""
    state = jnp.asarray([8.0, 2.0, 0.0])  # the beacon lies straight behind
    prior = filtrax.Gaussian(state, 0.01 * jnp.eye(3))
    reading = POLAR.wrap(jnp.asarray([2.0, jnp.pi + 0.01]))
    for name in ("ekf", "ukf", "ukf_dropped_centre", "mcukf", "mcukf_paper"):
        filt = FILTERS[name]
        belief = filt.init(MODEL, prior, key=jr.key(0))
        measurement = filtrax.Measurement(reading, 0.1 * jnp.eye(2), observed=jnp.ones(2, bool))
        updated, info = step(filt, belief, measurement, jnp.zeros(2), key=jr.key(1))
        assert jnp.abs(info.innovation[1]) < 0.05, name
        assert POSE.difference(updated.mean, state)[2] < 0.05, name
