"""Sensors: what they make of readings, and that what was not seen does no harm."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax import DirectSensor, Measurement, NetworkSensor, constant_noise, stack_sensors
from filtrax.networks import Perceptron
from filtrax.noise import heteroscedastic_noise
from filtrax.sensors import Precomputed, PrecomputedFeatures, draw_reading, sense

CORRELATED = np.asarray([[2.0, 0.5], [0.5, 1.0]])


def network_sensor(inputs=3):
    """A sensor whose encoder has a division that NaN, infinity or zero would spoil."""
    encoder_key, head_key, noise_key = jr.split(jr.key(0), 3)
    encoder = Perceptron((inputs, 4), key=encoder_key)

    def encode(network, reading, inputs, context, *, key):
        del inputs, context, key
        return network(reading / (1.0 + jnp.abs(reading)))

    return NetworkSensor(
        encoder=eqx.Partial(encode, encoder),
        head=Perceptron((4, 2), key=head_key),
        noise=heteroscedastic_noise(Perceptron((4, 2), key=noise_key), [1.0, 1.0], 0.1),
    )


def test_a_direct_sensor_passes_the_reading_on_with_its_noise(key):
    sensor = DirectSensor(constant_noise(CORRELATED))
    measurement = sensor(jnp.asarray([1.0, 2.0]), None, None, key=key)
    np.testing.assert_array_equal(measurement.value, [1.0, 2.0])
    np.testing.assert_allclose(measurement.covariance, CORRELATED)
    assert measurement.features is None
    np.testing.assert_array_equal(measurement.seen(), [True, True])


def test_simulated_readings_have_the_mean_and_covariance_of_the_noise(key):
    # Rejects a draw with the covariance, or its transposed factor, in the place of the factor.
    sensor, count = DirectSensor(constant_noise(CORRELATED)), 20_000
    expected = jnp.asarray([3.0, -1.0])
    draw = jax.jit(jax.vmap(lambda key: sensor.simulate(expected, key=key)))
    readings = np.asarray(draw(jr.split(key, count)))
    variances = np.diagonal(CORRELATED)
    assert (np.abs(readings.mean(0) - expected) < 5 * np.sqrt(variances / count)).all()
    bound = 5 * np.sqrt((np.outer(variances, variances) + CORRELATED**2) / count)
    assert (np.abs(np.cov(readings.T) - CORRELATED) < bound).all()


def test_a_network_sensor_is_encoder_value_head_and_noise_head(key):
    sensor, reading = network_sensor(), jnp.asarray([0.3, -2.0, 1.0])
    measurement = sensor(reading, None, None, key=key)
    features = sensor.encoder(reading, None, None, key=key)
    np.testing.assert_array_equal(measurement.features, features)
    np.testing.assert_allclose(measurement.value, sensor.head(features))
    np.testing.assert_allclose(measurement.covariance, sensor.noise.covariance(features))


def test_the_encoder_is_given_inputs_context_and_key(key):
    def encode(reading, inputs, context, *, key):
        return reading * context + inputs + jr.normal(key, reading.shape)

    sensor = NetworkSensor(encode, lambda features: features, constant_noise([1.0, 1.0]))
    reading = jnp.asarray([1.0, 2.0])
    inputs, context = jnp.asarray(7.0), jnp.asarray(3.0)
    value = sense(sensor, reading, None, inputs, context, key=key).value
    np.testing.assert_allclose(value, 3.0 * reading + 7.0 + jr.normal(key, (2,)))


def test_stacked_sensors_put_values_together_and_covariances_in_blocks(key):
    stacked = stack_sensors(DirectSensor(constant_noise(CORRELATED)), network_sensor())
    readings = jnp.asarray([1.0, 2.0]), jnp.asarray([0.3, -2.0, 1.0])
    measurement = stacked(readings, None, None, key=key)
    other = network_sensor()(readings[1], None, None, key=key)
    np.testing.assert_allclose(measurement.value, jnp.append(readings[0], other.value))
    expected = np.zeros((4, 4))
    expected[:2, :2], expected[2:, 2:] = CORRELATED, other.covariance
    np.testing.assert_allclose(measurement.covariance, expected)
    assert measurement.features[0] is None
    np.testing.assert_allclose(measurement.features[1], other.features)
    assert measurement.observed is True


def test_stacked_sensors_take_a_mask_each_for_the_whole_or_for_components(key):
    stacked = stack_sensors(
        DirectSensor(constant_noise(CORRELATED)), DirectSensor(constant_noise([1.0]))
    )
    readings = jnp.asarray([1.0, jnp.nan]), jnp.asarray([5.0])
    masks = jnp.asarray([True, False]), jnp.asarray(False)
    measurement = sense(stacked, readings, masks, None, None, key=key)
    np.testing.assert_array_equal(measurement.seen(), [True, False, False])
    np.testing.assert_array_equal(measurement.value, [1.0, 0.0, 0.0])


def test_one_mask_is_for_all_stacked_sensors(key):
    one = DirectSensor(constant_noise([1.0]))
    stacked = stack_sensors(stack_sensors(one, one), one)
    reading = jnp.full(1, jnp.nan)
    nothing = sense(stacked, ((reading, reading), reading), jnp.asarray(False), None, None, key=key)
    np.testing.assert_array_equal(nothing.seen(), [False] * 3)
    np.testing.assert_array_equal(nothing.value, 0)


def test_stacks_of_stacks_can_be_simulated_sensed_and_masked(key):
    inner = stack_sensors(
        DirectSensor(constant_noise([1e-9])), DirectSensor(constant_noise([1e-9, 1e-9]))
    )
    outer = stack_sensors(inner, DirectSensor(constant_noise([1e-9])))
    expected = jnp.asarray([1.0, 2.0, 3.0, 4.0])
    reading = outer.simulate(expected, key=key)
    assert jax.tree.map(jnp.shape, reading) == (((1,), (2,)), (1,))
    np.testing.assert_allclose(outer(reading, None, None, key=key).value, expected, atol=1e-7)
    yes, no = jnp.asarray(True), jnp.asarray(False)
    measurement = sense(outer, reading, ((no, yes), yes), None, None, key=key)
    np.testing.assert_array_equal(measurement.seen(), [False, True, True, True])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_unseen_reading_does_no_harm_to_values_or_gradients_of_a_network(bad, key):
    # Rejects a mask that is applied after the network: 0 · NaN is NaN in its gradient.
    def scored(sensor, reading, observed):
        measurement = sense(sensor, reading, observed, None, None, key=key)
        total = measurement.value.sum() + measurement.covariance.sum()
        return jnp.where(measurement.seen().all(), total, 0.0) + 0.0 * total

    value_and_grad = eqx.filter_jit(eqx.filter_value_and_grad(scored))
    value, gradient = value_and_grad(network_sensor(), jnp.full(3, bad), jnp.asarray(False))
    assert jnp.isfinite(value)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_an_unseen_component_is_hidden_and_the_others_are_kept(key):
    sensor = DirectSensor(constant_noise([1.0, 1.0]))
    reading = jnp.asarray([3.0, jnp.nan])
    measurement = sense(sensor, reading, jnp.asarray([True, False]), None, None, key=key)
    np.testing.assert_array_equal(measurement.value, [3.0, 0.0])
    np.testing.assert_array_equal(measurement.seen(), [True, False])


def test_a_mask_joins_what_the_sensor_itself_did_not_see(key):
    def sensor(reading, inputs, context, *, key):
        return Measurement(reading, jnp.eye(2), observed=reading > 0)

    reading, mask = jnp.asarray([1.0, -1.0]), jnp.asarray([False, True])
    assert not sense(sensor, reading, mask, None, None, key=key).seen().any()
    whole = sense(sensor, reading, jnp.asarray(True), None, None, key=key)
    np.testing.assert_array_equal(whole.seen(), [True, False])


@pytest.mark.parametrize(
    ("readings", "masks", "message"),
    [
        (jnp.zeros(2), None, "`readings` of 2 stacked sensors must be a tuple"),
        ((jnp.zeros(2),), None, r"`readings` of 2 stacked sensors.*got \(\(2,\),\)"),
        ((jnp.zeros(2), jnp.zeros(1)), (jnp.asarray(True),), "`observed` of 2 stacked sensors"),
        ((jnp.zeros(2), jnp.zeros(1)), jnp.ones(3, bool), "must be a tuple with one mask for each"),
    ],
)
def test_stacked_sensors_say_which_tuple_they_need(readings, masks, message, key):
    stacked = stack_sensors(
        DirectSensor(constant_noise(CORRELATED)), DirectSensor(constant_noise([1.0]))
    )
    with pytest.raises(ValueError, match=message):
        sense(stacked, readings, masks, None, None, key=key)


def test_a_component_mask_of_the_wrong_size_raises(key):
    sensor = DirectSensor(constant_noise([1.0, 1.0]))
    with pytest.raises(ValueError, match=r"`observed` must have shape \(2,\), got \(3,\)"):
        sense(sensor, jnp.zeros(2), jnp.ones(3, bool), None, None, key=key)


def test_what_cannot_be_drawn_or_stacked_raises(key):
    with pytest.raises(ValueError, match="NetworkSensor has none"):
        draw_reading(network_sensor(), jnp.zeros(2), key=key)
    with pytest.raises(ValueError, match="at least one sensor"):
        filtrax.stack_sensors()


def test_a_precomputed_reading_is_the_measurement_and_the_sensor_is_kept(key):
    sensor = network_sensor()
    measurement = sensor(jnp.asarray([1.0, 2.0, 3.0]), None, None, key=key)
    precomputed = Precomputed(sensor)
    assert sense(precomputed, measurement, None, None, None, key=key) is measurement
    assert jax.tree.leaves(precomputed) == jax.tree.leaves(sensor)


def test_precomputed_features_are_features(key):
    # Rejects a second encoding of what is encoded.
    sensor = network_sensor()
    reading = jnp.asarray([1.0, 2.0, 3.0])
    direct = sensor(reading, None, None, key=key)
    cached = eqx.tree_at(lambda s: s.encoder, sensor, PrecomputedFeatures())
    again = cached(direct.features, None, None, key=key)
    for ours, theirs in zip(jax.tree.leaves(again), jax.tree.leaves(direct), strict=True):
        np.testing.assert_array_equal(ours, theirs)
