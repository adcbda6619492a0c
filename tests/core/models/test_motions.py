"""Motions against integration by SciPy, and their noise against integrals and closed forms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import filtrax
from filtrax import models
from filtrax._given import unwrap

DT = 0.7


def cases():
    """Each motion with a state, its inputs, and its differential equation written by hand."""
    drive = {"odo": {"v": jnp.asarray(-1.3), "w": jnp.asarray(0.9)}}
    imu = {"imu": {"ax": jnp.asarray(0.8), "ay": jnp.asarray(-0.4), "gz": jnp.asarray(1.1)}}

    def velocity(x, u):
        return np.concatenate([x[3:], 0 * x[3:]])

    def acceleration(x, u):
        return np.concatenate([x[2:], 0 * x[:2]])

    def unicycle(x, u):
        return np.stack([x[3] * np.cos(x[2]), x[3] * np.sin(x[2]), x[4], 0 * x[3], 0 * x[3]])

    def bicycle(x, u):
        rate = x[3] * np.tan(x[4]) / 2.7
        return np.stack([x[3] * np.cos(x[2]), x[3] * np.sin(x[2]), rate, 0 * x[3], 0 * x[3]])

    def driven(x, u):
        v, w = 1.1 * u["odo"]["v"], 0.9 * u["odo"]["w"] + 0.05
        return np.stack([v * np.cos(x[2]), v * np.sin(x[2]), w + 0 * x[2]])

    def planar(x, u):
        a, b = u["imu"]["ax"] - x[5], u["imu"]["ay"] - x[6]
        c, s = np.cos(x[2]), np.sin(x[2])
        rates = [x[3], x[4], u["imu"]["gz"] - x[7], a * c - b * s, a * s + b * c]
        return np.stack([*rates, 0 * x[5], 0 * x[5], 0 * x[5]])

    given = filtrax.given
    return {
        "velocity": (models.ConstantVelocity(0.3, 3), np.arange(6.0), {}, velocity),
        "acceleration": (models.ConstantAcceleration(0.3, 2), np.arange(6.0), {}, acceleration),
        "unicycle": (models.Unicycle(0.5, 0.2), np.array([1.0, 2, 0.4, 3, 0.6]), {}, unicycle),
        "bicycle": (
            *(models.Bicycle(given(2.7), 0.5, 0.2), np.array([1.0, 2, 0.4, 3, 0.3])),
            *({}, bicycle),
        ),
        "driven": (
            models.DrivenPose(
                *("odo.v", "odo.w"),
                **{"distance_std": 0.1, "turn_std": 0.05, "slip_std": 0.02, "drift_std": 0.01},
                **{"speed_scale": given(1.1), "turn_scale": given(0.9), "turn_bias": given(0.05)},
            ),
            *(np.array([1.0, 2.0, 0.4]), drive, driven),
        ),
        "planar": (
            models.PlanarImu(
                *("imu.ax", "imu.ay", "imu.gz"),
                **{"acceleration_std": 0.05, "gyro_std": 0.01},
                **{"acceleration_walk": 0.002, "gyro_walk": 0.001},
            ),
            *(np.array([1.0, 2, 0.4, 1, -1, 0.1, -0.2, 0.05]), imu, planar),
        ),
    }


NAMES = sorted(cases())


def assembled(motion):
    """A model with the motion and a sensor of its position."""
    columns = motion.names[: getattr(motion, "dimensions", 2)]
    return models.build(motion, {"gnss": models.Sensor(models.Position(), columns, std=1.0)})


def built(motion):
    """The same, bound, with plain arrays."""
    return unwrap(assembled(motion)).bind(None)


@pytest.mark.parametrize("name", NAMES)
def test_the_flow_is_the_integral_of_its_equation_forwards_and_backwards(name):
    motion, start, inputs, rate = cases()[name]
    motion = unwrap(motion)
    for dt in (DT, -0.2):
        exact = solve_ivp(lambda t, x: rate(x, inputs), (0, dt), start, rtol=1e-11, atol=1e-12).y[
            :, -1
        ]
        flow = motion.flow(jnp.asarray(start), inputs, jnp.asarray(dt))
        np.testing.assert_allclose(flow, exact, rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("name", NAMES)
def test_noise_is_the_integral_of_white_noise_along_the_way(name):
    """Rejects noise that ignores that it moves on, as q dt on the last components alone does."""
    motion, start, inputs, rate = cases()[name]
    model, motion = built(motion), unwrap(motion)
    factors = {n: np.asarray(part(start, inputs)) for n, part in motion.noise.items()}

    def jacobian(x, u):
        columns = [rate(x + 1e-20j * axis, u).imag / 1e-20 for axis in np.eye(len(x))]
        return np.stack(columns, -1)

    def change(t, flat):
        x, P = flat[: len(start)], flat[len(start) :].reshape(len(start), -1)
        entries = motion.entries(jnp.asarray(x), inputs)
        G = np.concatenate([np.asarray(entries[n]) @ factors[n] for n in factors], 1)
        A = jacobian(x, inputs)
        return np.concatenate([rate(x, inputs), (A @ P + P @ A.T + G @ G.T).ravel()])

    zero = np.zeros(len(start) ** 2)
    for dt in (0.05, DT):
        y = solve_ivp(change, (0, dt), np.append(start, zero), rtol=1e-9, atol=1e-14).y[:, -1]
        exact = y[len(start) :].reshape(len(start), -1)
        known = {**inputs, "dt": jnp.asarray(dt)}
        Q = np.asarray(model.process_noise.covariance(jnp.asarray(start), known))
        np.testing.assert_allclose(Q, exact, rtol=2e-4, atol=2e-5 * np.abs(exact).max())


def test_noise_of_constant_velocity_and_acceleration_is_the_textbooks():
    dt, q = 0.3, 0.5
    second = q**2 * np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    third = q**2 * np.array(
        [
            [dt**5 / 20, dt**4 / 8, dt**3 / 6],
            [dt**4 / 8, dt**3 / 3, dt**2 / 2],
            [dt**3 / 6, dt**2 / 2, dt],
        ]
    )
    inputs = {"dt": jnp.asarray(dt)}
    for motion, expected in (
        (models.ConstantVelocity(q, 1), second),
        (models.ConstantAcceleration(q, 1), third),
    ):
        sensor = models.Sensor(models.Position(), "x", std=1.0)
        model = models.build(motion, {"gnss": sensor}).bind(None)
        Q = model.process_noise.covariance(jnp.zeros(len(expected)), inputs)
        np.testing.assert_allclose(Q, expected, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_noise_of_two_steps_is_that_of_one_as_long(name):
    """Rejects noise per step: halving a step must not change what is not known at its end."""
    motion, start, inputs, _ = cases()[name]
    model = built(motion)
    halves = {**inputs, "dt": jnp.asarray(0.1)}
    process = lambda x, u: model.process(x, u)  # noqa: E731
    x = jnp.asarray(start)
    Q1 = model.process_noise.covariance(x, halves)
    middle, F = process(x, halves), jax.jacfwd(process)(process(x, halves), halves)
    two = F @ Q1 @ F.T + model.process_noise.covariance(middle, halves)
    one = model.process_noise.covariance(x, {**inputs, "dt": jnp.asarray(0.2)})
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6 * float(jnp.abs(one).max()))


@pytest.mark.parametrize("name", NAMES)
def test_a_step_of_no_time_changes_nothing_and_has_finite_gradients(name):
    motion, start, inputs, _ = cases()[name]
    model, x = assembled(motion), jnp.asarray(start)

    def total(model, x, dt):
        bound = unwrap(model).bind(None)
        known = {**inputs, "dt": dt}
        factor = bound.process_noise(x, known)
        return bound.process(x, known).sum() + factor.sum(), factor

    (_, factor), gradient = jax.value_and_grad(total, (0, 1, 2), has_aux=True, allow_int=True)(
        model, x, jnp.asarray(0.0)
    )
    assert (factor == 0).all()
    bound = unwrap(model).bind(None)
    np.testing.assert_array_equal(bound.process(x, {**inputs, "dt": jnp.asarray(0.0)}), x)
    for leaf in jax.tree.leaves(gradient):
        assert leaf.dtype == jax.dtypes.float0 or jnp.isfinite(leaf).all()


def test_noise_and_process_share_the_parameters_of_the_motion():
    """Rejects copies: a turn scale that is learned in the process and not where noise uses it."""
    sensors = {"yaw": models.Sensor(models.YawRate(), "w", std=0.1)}
    model = models.build(models.Bicycle(2.7, 0.5, 0.2), sensors)
    leaves = [leaf for leaf in jax.tree.leaves(model) if np.ndim(leaf) == 0 and leaf == 2.7]
    assert len(leaves) == 1
    x, inputs = jnp.asarray([0.0, 0.0, 0.0, 2.0, 0.3]), {"dt": jnp.asarray(0.1)}
    longer = models.build(models.Bicycle(5.4, 0.5, 0.2), sensors).process
    changed = dataclasses.replace(model, process=longer).bind(None)
    np.testing.assert_allclose(
        changed.observe(x, inputs), model.bind(None).observe(x, inputs) / 2, rtol=1e-12
    )


def test_parts_that_are_not_bound_say_so():
    sensor = models.Sensor(models.Position(), ("x", "y"), std=1.0)
    model = models.build(models.ConstantVelocity(0.5), {"gnss": sensor})
    with pytest.raises(ValueError, match=r"model\.bind\(None\)"):
        model.observe(jnp.zeros(4), {"dt": jnp.asarray(0.1)})


def test_walking_parameters_are_states_with_noise_of_their_own():
    motion = models.DrivenPose(
        "odo.v", "odo.w", distance_std=0.1, turn_bias=models.RandomWalk(0.02)
    )
    sensors = {
        "gnss": models.Sensor(models.Position(), ("x", "y"), std=1.0, bias=models.RandomWalk(0.3))
    }
    model = models.build(motion, sensors).bind(None)
    assert model.state_space.names == (
        *("x", "y", "heading", "turn_bias", "gnss.bias.x", "gnss.bias.y"),
    )
    state = jnp.asarray([1.0, 2.0, 0.3, 0.1, 10.0, 20.0])
    inputs = {"dt": jnp.asarray(0.5), "odo": {"v": jnp.asarray(0.0), "w": jnp.asarray(0.2)}}
    model = unwrap(model)
    np.testing.assert_allclose(model.process(state, inputs)[2:4], [0.45, 0.1])
    np.testing.assert_allclose(model.observe(state, inputs), [11.0, 22.0])
    Q = np.asarray(model.process_noise.covariance(state, inputs))
    np.testing.assert_allclose(np.diag(Q)[3:], [0.5 * 0.02**2, *[0.5 * 0.3**2] * 2])
    heading, bias = np.asarray(jax.jacfwd(model.process)(state, inputs))[2, 3], Q[2, 3]
    assert heading == pytest.approx(0.5)
    assert bias == 0.0


def test_noise_that_ties_components_and_grows_with_time_and_distance():
    tied = models.tied_noise([0.1, 0.02], (0, 0, 1))
    np.testing.assert_allclose(tied.std, [0.1, 0.1, 0.02])
    np.testing.assert_allclose(tied.covariance(None), np.diag(np.square([0.1, 0.1, 0.02])))
    assert len(jax.tree.leaves(tied.noise.bias)) == 1
    assert tied.noise.bias.size == 2
    timed, driven = models.per_second([0.3, 0.1]), models.per_metre(tied, "moved")
    inputs = {"dt": jnp.asarray(0.25), "moved": jnp.asarray(-4.0)}
    np.testing.assert_allclose(timed(jnp.zeros(2), inputs), 0.5 * np.diag([0.3, 0.1]))
    np.testing.assert_allclose(driven(jnp.zeros(3), inputs), 2.0 * np.diag([0.1, 0.1, 0.02]))
    gradient = jax.grad(lambda dt: timed(jnp.zeros(2), {"dt": dt}).sum())(jnp.asarray(0.0))
    assert gradient == 0.0
    with pytest.raises(ValueError, match="`groups` must name each"):
        models.tied_noise([0.1, 0.2], (0, 0, 0))


def test_given_noise_and_parameters_are_not_trained():
    motion = models.Bicycle(filtrax.given(2.7), filtrax.given(0.5), 0.2)
    sensor = models.Sensor(
        models.Position(), ("x", "y"), std=filtrax.given(1.0), bias=0.0, delay=filtrax.given(0.1)
    )
    table = filtrax.training.parts.describe(None, models.build(motion, {"gnss": sensor}), ["model"])
    names = [line.split()[0] for line in table.splitlines()[1:-1]]
    assert names == [
        "model.process_noise.noise.steering_rate.bias",
        "model.observe.sensors.0.bias",
    ]


def test_wrong_arguments_are_refused_with_a_sentence():
    sensor = models.Sensor(models.Heading(), "yaw", std=0.1)
    with pytest.raises(ValueError, match="Heading of 'compass' with ConstantVelocity"):
        models.build(models.ConstantVelocity(0.5), {"compass": sensor})
    with pytest.raises(ValueError, match="2 components, but got the columns"):
        models.build(
            models.ConstantVelocity(0.5), {"g": models.Sensor(models.Position(), "x", std=1.0)}
        )
    with pytest.raises(ValueError, match="an angle has no size"):
        models.Sensor(models.Heading(), "yaw", std=0.1, scale=1.0)
    with pytest.raises(ValueError, match="at least one of `distance_std`"):
        models.DrivenPose("odo.v", "odo.w")
    with pytest.raises(ValueError, match="`dimensions` must be 1, 2 or 3"):
        models.ConstantVelocity(0.5, 4)
    with pytest.raises(ValueError, match="`frame` must be one of"):
        models.Velocity("local")
    with pytest.raises(ValueError, match="`ids` must be distinct"):
        models.Landmarks([1, 1], [[0.0, 0.0], [1.0, 1.0]], "id")
    with pytest.raises(ValueError, match="`ids` must be below 16,777,216"):
        models.Landmarks([1, 2**24 + 1], [[0.0, 0.0], [1.0, 1.0]], "id")
    with pytest.raises(ValueError, match="`positions` must be finite"):
        models.Landmarks([1], [[0.0, np.nan]], "id")
    with pytest.raises(ValueError, match="`acceleration` must be one standard deviation or 2"):
        models.ConstantVelocity([0.5, 0.5, 0.5])
    with pytest.raises(ValueError, match="at least one sensor"):
        models.build(models.ConstantVelocity(0.5), {})
