"""The interface as a user meets it: names of arguments, inputs, keys, results and given values."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import filtrax
from systems import all_filters, as_float32, beacon_model, beacon_prior, beacon_trajectory

EKF = filtrax.ExtendedKalmanFilter()
READING, COMMAND = np.asarray([6.0, -2.0]), np.asarray([0.3, 0.15])
READINGS, COMMANDS = np.tile(READING, (4, 1)), np.tile(COMMAND, (4, 1))
STEP = filtrax.online(EKF, beacon_model()).step

OLD_CALLS = {
    "run with commands before readings": (
        lambda: filtrax.run(EKF, beacon_model(), beacon_prior(), COMMANDS, READINGS),
        r"must be given by name, got 5 in a row: run\(filter, model, prior, readings, \*, inputs",
    ),
    "run with controls": (
        lambda: filtrax.run(EKF, beacon_model(), beacon_prior(), READINGS, controls=COMMANDS),
        r"`controls` is called `inputs` now: run\(",
    ),
    "online step with a command before the reading": (
        lambda: STEP(beacon_prior(), COMMAND, READING),
        r"must be given by name, got 3 in a row: step\(belief, reading, \*, inputs",
    ),
    "online step with a control": (
        lambda: STEP(beacon_prior(), READING, control=COMMAND),
        r"`control` is called `inputs` now",
    ),
    "simulate with commands in a row": (
        lambda: filtrax.simulate(beacon_model(), beacon_prior(), COMMANDS, key=jr.key(0)),
        r"must be given by name, got 3 in a row: simulate\(model, prior, \*, inputs",
    ),
    "simulate with controls": (
        lambda: filtrax.simulate(beacon_model(), beacon_prior(), controls=COMMANDS, key=jr.key(0)),
        r"`controls` is called `inputs` now: simulate\(",
    ),
    "a trajectory with commands before readings": (
        lambda: filtrax.Trajectory(jnp.zeros(3), jnp.eye(3), COMMANDS, READINGS),
        r"must be given by name, got 4 in a row: Trajectory\(",
    ),
    "a trajectory with controls": (
        lambda: filtrax.Trajectory(jnp.zeros(3), jnp.eye(3), READINGS, controls=COMMANDS),
        r"`controls` is called `inputs` now: Trajectory\(",
    ),
}


@pytest.mark.parametrize("name", OLD_CALLS)
def test_a_call_in_the_old_form_says_the_new_one(name):
    """Rejects commands that are taken for readings: the shapes of all these calls would fit."""
    call, message = OLD_CALLS[name]
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("name", "advice"), [("run_with_info", "info=True"), ("InteractingFilter", "IMMFilter")]
)
def test_a_name_that_is_gone_says_the_new_one(name, advice):
    with pytest.raises(AttributeError, match=advice):
        getattr(filtrax, name)


PARTS = {
    "process": lambda state: state,
    "observe": lambda state: state[:2],
    "process_noise": lambda state: jnp.eye(3),
    "sensor": lambda reading, context, *, key: filtrax.Measurement(reading, jnp.eye(2)),
    "likelihood": lambda expected, measurement: 0.0,
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_with_other_arguments_is_refused(name):
    """Rejects signatures that are looked at, and parts that are called in several ways."""
    with pytest.raises(TypeError, match=rf"`{name}` must be callable as `{name}\("):
        dataclasses.replace(beacon_model(), **{name: PARTS[name]})


def counting(**parts):
    """A model of one number that adds its input, and sees the input of the step beside it."""
    known = {
        "process": lambda state, inputs: state + inputs["push"],
        "process_noise": filtrax.constant_noise([0.0]),
        "observe": lambda state, inputs: state * inputs["scale"],
        "sensor": filtrax.DirectSensor(filtrax.constant_noise([1.0])),
    }
    return filtrax.StateSpaceModel(**known | parts)


@pytest.mark.parametrize("filt", [EKF, filtrax.UnscentedKalmanFilter()])
def test_inputs_of_a_step_belong_to_its_process_and_to_its_reading(filt):
    """Rejects inputs that are shifted by a step, as those of dynamax are, by a filter by hand."""
    inputs = {"push": np.asarray([1.0, 10.0, 100.0]), "scale": np.asarray([2.0, 3.0, 0.5])}
    readings, prior = np.asarray([[3.0], [30.0], [60.0]]), filtrax.Gaussian([0.0], [[4.0]])
    means, variances, mean, variance = [], [], 0.0, 4.0
    for push, scale, reading in zip(*inputs.values(), readings[:, 0], strict=True):
        mean += push
        gain = variance * scale / (scale**2 * variance + 1.0)
        mean, variance = mean + gain * (reading - scale * mean), (1 - gain * scale) * variance
        means.append(mean)
        variances.append(variance)
    result = filtrax.run(filt, counting(), prior, readings, inputs=inputs)
    np.testing.assert_allclose(result.beliefs.mean[:, 0], means, rtol=1e-12)
    np.testing.assert_allclose(result.beliefs.covariance[:, 0, 0], variances, rtol=1e-12)


def test_inputs_reach_noise_sensor_likelihood_and_modes():
    """Rejects a part that is not handed what is known at its step."""
    inputs = {"push": jnp.ones(3), "scale": jnp.asarray([1.0, 2.0, 3.0])}
    seen = []

    class Noise(filtrax.noise.AbstractNoise):
        size = property(lambda self: 1)

        def __call__(self, state, inputs):
            seen.append("process_noise")
            return inputs["scale"] * jnp.eye(1)

    def sensor(reading, inputs, context, *, key):
        seen.append("sensor")
        return filtrax.Measurement(reading, factor=inputs["scale"] * jnp.eye(1))

    def likelihood(expected, measurement, inputs, space):
        seen.append("likelihood")
        return -inputs["scale"] * ((expected - measurement.value) ** 2).sum()

    model = counting(process_noise=Noise(), sensor=sensor, likelihood=likelihood)
    prior, readings = filtrax.Gaussian([0.0], [[1.0]]), jnp.ones((3, 1))
    result = filtrax.run(EKF, model, prior, readings, inputs=inputs, info=True)
    # Q and R are the squares of the scale.
    variance = 1.0
    for t, scale in enumerate([1.0, 2.0, 3.0]):
        total = scale**2 * (variance + scale**2) + scale**2
        np.testing.assert_allclose(result.info.innovation_covariance[t, 0, 0], total, rtol=1e-12)
        variance = (variance + scale**2) * scale**2 / total
    particles = filtrax.ParticleFilter(num_particles=5)
    filtrax.run(particles, model, prior, readings, inputs=inputs, key=jr.key(0))
    assert {*seen} == {"process_noise", "sensor", "likelihood"}


DETERMINISTIC = ("ekf", "iterated_ekf", "ukf", "ukf_paper", "ukf_dropped_centre", "imm", "lstm")


@pytest.mark.parametrize("name", all_filters())
def test_a_key_is_needed_where_something_draws_and_changes_nothing_elsewhere(name):
    """Rejects keys that are made up, and numbers that depend on a key that is not needed."""
    filt, trajectory = all_filters()[name], beacon_trajectory(3)
    run = lambda key: filtrax.run(  # noqa: E731
        filt,
        beacon_model(),
        trajectory.prior,
        trajectory.readings,
        inputs=trajectory.inputs,
        key=key,
    )
    if name not in DETERMINISTIC:
        with pytest.raises(ValueError, match=rf"{type(filt).__name__} draws: give `key=`"):
            run(None)
        return
    for with_key, without in zip(*map(jax.tree.leaves, (run(jr.key(3)), run(None))), strict=True):
        np.testing.assert_array_equal(with_key, without)


def test_a_sensor_that_needs_a_key_asks_for_it():
    class Dropout(eqx.Module):
        network: eqx.nn.Dropout = eqx.nn.Dropout(0.5)

        def __call__(self, reading, inputs, context, *, key):
            return filtrax.Measurement(self.network(reading, key=key), jnp.eye(2))

    model = dataclasses.replace(beacon_model(), sensor=Dropout())
    with pytest.raises(RuntimeError, match="key"):
        filtrax.run(EKF, model, beacon_prior(), READINGS, inputs=COMMANDS)


def test_a_result_says_what_was_asked_for_and_works_inside_of_transformations():
    trajectory, model = beacon_trajectory(5), beacon_model()
    run = lambda readings, **options: filtrax.run(  # noqa: E731
        EKF, model, trajectory.prior, readings, inputs=trajectory.inputs, **options
    )
    result, full = run(trajectory.readings), run(trajectory.readings, info=True)
    assert result.info.gain is None
    assert full.info.gain.shape == (5, 3, 2)
    np.testing.assert_allclose(result.log_likelihood, full.info.log_likelihood.sum(), rtol=1e-12)
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(result))
    batch = jnp.stack([trajectory.readings, 1.1 * trajectory.readings])
    mapped = jax.vmap(run)(batch)
    np.testing.assert_allclose(mapped.log_likelihood[0], result.log_likelihood, rtol=1e-12)
    gradient = jax.grad(lambda readings: run(readings).log_likelihood)(trajectory.readings)
    assert jnp.isfinite(gradient).all()


class Beacons(eqx.Module):
    """Ranges to beacons; the map is surveyed, the bias is not."""

    surveyed: jax.Array = filtrax.given_field()
    bias: jax.Array
    marked: object

    def __call__(self, state, inputs):
        ranges = jnp.sqrt(((self.surveyed - state[None, :]) ** 2).sum(1))
        return ranges + self.bias + self.marked.sum()


def beacons(marked):
    surveyed = jnp.asarray([[0.0, 5.0], [5.0, 0.0], [-4.0, -3.0]])
    return filtrax.StateSpaceModel(
        process=lambda state, inputs: state,
        process_noise=filtrax.constant_noise([0.1, 0.1]),
        observe=Beacons(surveyed, jnp.asarray(0.5), marked),
        sensor=filtrax.DirectSensor(filtrax.constant_noise([0.3, 0.3, 0.3])),
    )


def test_given_values_stay_what_they_are_whatever_optimizer_and_weight_decay_do(caplog):
    """Rejects masks by class, and weight decay that shrinks what has no gradient."""
    model = beacons(filtrax.given(np.asarray([0.25])))
    prior = filtrax.Gaussian(jnp.zeros(2), jnp.eye(2))
    data = filtrax.simulate(beacons(jnp.asarray([0.25])), prior, num_steps=10, key=jr.key(0))
    with caplog.at_level("INFO", "filtrax"):
        _, fitted, _ = filtrax.fit(
            EKF,
            model,
            data,
            loss=filtrax.losses.nll,
            optimizer=optax.adamw(1e-2, weight_decay=0.1),
            num_steps=3,
            key=jr.key(1),
        )
    np.testing.assert_array_equal(fitted.observe.surveyed, model.observe.surveyed)
    np.testing.assert_array_equal(fitted.observe.marked.value, [0.25])
    assert fitted.observe.bias != model.observe.bias
    assert "model.observe.bias" in caplog.text
    assert "surveyed" not in caplog.text
    assert "marked" not in caplog.text


def test_given_values_are_plain_arrays_for_parts_of_a_model_and_can_be_saved(tmp_path):
    model, prior = beacons(filtrax.given([0.25])), filtrax.Gaussian(jnp.zeros(2), jnp.eye(2))
    readings = jnp.ones((3, 3))
    result = filtrax.run(EKF, model, prior, readings)
    plain = filtrax.run(EKF, beacons(jnp.asarray([0.25])), prior, readings)
    np.testing.assert_array_equal(result.beliefs.mean, plain.beliefs.mean)
    loop = filtrax.online(EKF, model)
    belief, _ = loop.step(loop.init(prior), readings[0])
    np.testing.assert_allclose(belief.mean, plain.beliefs.mean[0], rtol=1e-12)
    filtrax.save(tmp_path / "model.npz", EKF, model)
    _, loaded = filtrax.load(tmp_path / "model.npz", EKF, beacons(filtrax.given([0.0])))
    np.testing.assert_array_equal(loaded.observe.marked.value, [0.25])
    gradient = eqx.filter_grad(
        lambda model: filtrax.run(EKF, model, prior, readings).log_likelihood
    )(model)
    np.testing.assert_array_equal(gradient.observe.marked.value, [0.0])


def test_noise_shows_standard_deviations_in_the_users_units():
    noise = filtrax.constant_noise([0.2, 30.0], floor=1e-4)
    np.testing.assert_allclose(noise.std, [0.2, 30.0], rtol=1e-12)
    assert "std=[0.2, 30]" in str(noise)
    full = filtrax.constant_noise(np.asarray([[4.0, 1.0], [1.0, 9.0]]))
    np.testing.assert_allclose(full.std, [2.0, 3.0], rtol=1e-12)
    assert "std=[0.2, 0.1]" in str(beacon_model())


@pytest.mark.parametrize("name", ["ekf", "pf", "imm", "lstm"])
def test_an_exported_step_is_the_step_and_can_be_written_to_a_file(name):
    """Rejects a step that calls Python, or arguments of classes that another process lacks."""
    filt, model, trajectory = as_float32(
        (all_filters()[name], beacon_model(), beacon_trajectory(4))
    )
    loop, as_dicts = filtrax.online(filt, model), filtrax.filters.as_dicts
    belief = loop.init(as_float32(beacon_prior()), key=jr.key(0))
    readings, commands = trajectory.readings, trajectory.inputs
    exported = loop.export(belief, readings[0], inputs=commands[0], key=jr.key(0))
    step = jax.export.deserialize(exported.serialize()).call
    theirs = as_dicts(belief)
    for t, (reading, command) in enumerate(zip(readings, commands, strict=True)):
        belief, info = loop.step(belief, reading, inputs=command, key=jr.key(t))
        theirs, their_info = step(theirs, reading, command, np.asarray(True), jr.key(t))
        np.testing.assert_array_equal(their_info["finite"], info.finite)
        pairs = zip(jax.tree.leaves(theirs), jax.tree.leaves(as_dicts(belief)), strict=True)
        for leaf, expected in pairs:
            np.testing.assert_allclose(leaf, expected, rtol=1e-4, atol=1e-5)
