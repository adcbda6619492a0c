"""Sensors against geometry that is written down by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
from filtrax import models
from filtrax._given import unwrap

STATE = np.array([2.0, -1.0, 0.6, 1.5, 0.4])  # x, y, heading, speed, yaw rate
MAP = {3: (5.0, 3.0), 8: (-4.0, 0.5)}
LANDMARKS = models.Landmarks(list(MAP), list(MAP.values()), "id")


def expected(sensor, state=STATE, motion=None, **fields):
    """The expected reading of a sensor on a unicycle."""
    motion = models.Unicycle(0.5, 0.2) if motion is None else motion
    model = unwrap(models.build(motion, {"s": sensor})).bind(None)
    fields = {name: jnp.asarray(float(value)) for name, value in fields.items()}
    inputs = {"dt": jnp.asarray(0.1), "s": fields}
    return np.asarray(model.observe(jnp.asarray(state), inputs))


def test_quantities_of_the_body_itself():
    x, y, heading, speed, rate = STATE
    world = speed * np.array([np.cos(heading), np.sin(heading)])
    cases = [
        (models.Sensor(models.Position(), ("x", "y"), std=1.0), [x, y]),
        (models.Sensor(models.Velocity(), ("u", "v"), std=1.0), world),
        (models.Sensor(models.Velocity("body"), ("u", "v"), std=1.0), [speed, 0.0]),
        (models.Sensor(models.Speed(), "v", std=1.0), [speed]),
        (models.Sensor(models.YawRate(), "w", std=1.0), [rate]),
        (models.Sensor(models.Heading(), "h", std=1.0), [heading]),
    ]
    for sensor, value in cases:
        np.testing.assert_allclose(expected(sensor), value, rtol=1e-12, atol=1e-12)
    backwards = STATE * [1, 1, 1, -1, 1]
    assert expected(cases[3][0], backwards) == pytest.approx(-speed)
    point = models.ConstantVelocity(0.5)
    np.testing.assert_allclose(expected(cases[3][0], [0.0, 0, 3, -4], point), [5.0])


def test_ranges_and_bearings_to_the_landmark_of_the_reading():
    """Rejects an index in the place of a landmark's number, and bearings in the other frame."""
    x, y, heading = STATE[:3]
    for number, (east, north) in MAP.items():
        distance = np.hypot(east - x, north - y)
        angle = np.arctan2(north - y, east - x)
        range_sensor = models.Sensor(models.Range(LANDMARKS), "r", std=1.0)
        body = models.Sensor(models.Bearing(LANDMARKS), "b", std=0.1)
        world = models.Sensor(models.Bearing(LANDMARKS, "world"), "b", std=0.1)
        both = models.Sensor(models.RangeBearing(LANDMARKS), ("r", "b"), std=[0.1, 0.02])
        assert expected(range_sensor, id=number) == pytest.approx(distance)
        assert expected(body, id=number) == pytest.approx(angle - heading)
        assert expected(world, id=number) == pytest.approx(angle)
        np.testing.assert_allclose(expected(both, id=number), [distance, angle - heading])
        place = models.Range(models.PlaceColumns("e", "n"))
        columns = models.Sensor(place, "r", std=1.0)
        assert expected(columns, e=east, n=north) == pytest.approx(distance)


def test_a_lever_arm_is_ahead_and_to_the_left():
    x, y, heading = STATE[:3]
    ahead, left = (
        np.array([np.cos(heading), np.sin(heading)]),
        np.array([-np.sin(heading), np.cos(heading)]),
    )
    antenna = np.array([x, y]) + 0.7 * ahead + 0.2 * left
    sensor = models.Sensor(models.Position(), ("x", "y"), std=1.0, lever_arm=(0.7, 0.2))
    np.testing.assert_allclose(expected(sensor), antenna)
    moved = models.Sensor(models.Range(LANDMARKS), "r", std=1.0, lever_arm=(0.7, 0.2))
    assert expected(moved, id=3) == pytest.approx(np.hypot(*(np.array(MAP[3]) - antenna)))
    # The velocity there, by differences of the antenna's position in time.
    velocity = models.Sensor(models.Velocity(), ("u", "v"), std=1.0, lever_arm=(0.7, 0.2))
    h, motion = 1e-6, models.Unicycle(0.5, 0.2)
    later, earlier = (
        expected(sensor, motion.flow(jnp.asarray(STATE), {}, jnp.asarray(s))) for s in (h, -h)
    )
    np.testing.assert_allclose(expected(velocity), (later - earlier) / (2 * h), rtol=1e-8)


def test_a_delayed_reading_is_of_the_state_before():
    motion = models.Unicycle(0.5, 0.2)
    late = models.Sensor(models.Position(), ("x", "y"), std=1.0, delay=0.3)
    now = models.Sensor(models.Position(), ("x", "y"), std=1.0)
    before = motion.flow(jnp.asarray(STATE), {}, jnp.asarray(-0.3))
    np.testing.assert_allclose(expected(late), expected(now, before), rtol=1e-12)
    # Its derivative by the delay is minus the velocity then.
    model = models.build(motion, {"s": late})
    inputs = {"dt": jnp.asarray(0.1)}
    gradient = jax.jacobian(
        lambda m: m.bind(None).observe(jnp.asarray(STATE), inputs), allow_int=True
    )(model)
    speed = models.Sensor(models.Velocity(), ("u", "v"), std=1.0)
    np.testing.assert_allclose(gradient.observe.sensors[0].delay, -expected(speed, before))


def test_scale_and_bias_of_the_sensor_and_of_each_landmark():
    distance = np.hypot(3.0, 4.0)
    one = models.Sensor(models.Range(LANDMARKS), "r", std=1.0, scale=1.1, bias=0.5)
    assert expected(one, id=3) == pytest.approx(1.1 * distance + 0.5)
    each = models.Sensor(models.Range(LANDMARKS), "r", std=1.0, bias=[0.5, -2.0])
    assert expected(each, id=3) == pytest.approx(distance + 0.5)
    assert expected(each, id=8) == pytest.approx(np.hypot(6.0, 1.5) - 2.0)
    both = models.Sensor(models.RangeBearing(LANDMARKS), ("r", "b"), std=[1.0, 0.1], scale=2.0)
    plain = models.Sensor(models.RangeBearing(LANDMARKS), ("r", "b"), std=[1.0, 0.1])
    np.testing.assert_allclose(expected(both, id=3), expected(plain, id=3) * [2.0, 1.0])


@pytest.mark.parametrize("quantity", [models.Range, models.RangeBearing])
def test_gradients_at_the_landmark_itself_are_finite(quantity):
    columns = ("r", "b")[: 1 + (quantity is models.RangeBearing)]
    model = models.build(
        models.Unicycle(0.5, 0.2), {"s": models.Sensor(quantity(LANDMARKS), columns, std=1.0)}
    )
    bound, inputs = (
        unwrap(model).bind(None),
        {"dt": jnp.asarray(0.0), "s": {"id": jnp.asarray(3.0)}},
    )
    there = jnp.asarray([*MAP[3], 0.0, 0.0, 0.0])
    value, slope = bound.observe(there, inputs), jax.jacobian(bound.observe)(there, inputs)
    assert value[0] == 0.0
    assert jnp.isfinite(slope).all()
    still = models.Sensor(models.Speed(), "v", std=1.0)
    point = unwrap(models.build(models.ConstantVelocity(0.5), {"s": still})).bind(None)
    assert jnp.isfinite(jax.jacobian(point.observe)(jnp.zeros(4), inputs)).all()


def test_noise_may_depend_on_the_fields_of_a_reading():
    class ByStrength(filtrax.noise.AbstractNoise):
        std: jax.Array

        @property
        def size(self):
            return 1

        def __call__(self, reading, fields):
            return (self.std / fields["strength"])[None, None]

    sensor = models.StreamSensor(ByStrength(jnp.asarray(2.0)), "uwb")
    inputs = {"uwb": {"strength": jnp.asarray(4.0)}}
    measurement = sensor(jnp.asarray([7.0]), inputs, None)
    np.testing.assert_allclose(measurement.covariance, [[0.25]])


def test_landmarks_are_never_trained():
    model = models.build(
        models.Unicycle(0.5, 0.2),
        {"s": models.Sensor(models.Range(LANDMARKS), "r", std=1.0, bias=0.0)},
    )
    table = filtrax.training.parts.describe(None, model, ["model"])
    assert "landmarks" not in table
    assert "model.observe.sensors.0.bias" in table
