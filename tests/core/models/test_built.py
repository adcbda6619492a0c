"""Models of a log in filters, training and files."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import filtrax
from filtrax import models
from filtrax.logs import Log

LANDMARKS = models.Landmarks([1, 2, 5], [[5.0, 5.0], [-5.0, 4.0], [0.0, -6.0]], "id")
TRUTH = {"x": "truth.x", "y": "truth.y", "heading": "truth.heading"}


def log_of(count=150, seed=0, bias=0.7, delay=0.0):
    """A drive on a circle, with ranges to one of three beacons and fixes that may be late."""
    rng, t = np.random.default_rng(seed), 0.1 * np.arange(count)
    heading = 0.2 * t
    x, y = 5 * np.sin(heading), 5 - 5 * np.cos(heading)
    which = rng.integers(3, size=count)
    place = np.asarray(LANDMARKS.positions)[which]
    ranges = np.hypot(place[:, 0] - x, place[:, 1] - y) + bias + 0.1 * rng.normal(size=count)
    some = slice(4, None, 5)
    return Log.from_arrays(
        {
            "truth": {"t": t, "x": x, "y": y, "heading": heading},
            "odo": {"t": t, "v": np.ones(count), "w": np.full(count, 0.2)},
            "uwb": {"t": t, "range": ranges, "id": np.asarray(LANDMARKS.ids)[which]},
            "gnss": {
                "t": t[some] + delay,
                "e": x[some] + 0.2 * rng.normal(size=count)[some],
                "n": y[some] + 0.2 * rng.normal(size=count)[some],
            },
        },
        units={"heading": "rad"},
    )


def model_of(**options):
    motion = models.DrivenPose("odo.v", "odo.w", distance_std=0.05, drift_std=0.02)
    gnss = {"std": 0.2, **options}
    return models.build(
        motion,
        {
            "uwb": models.Sensor(models.Range(LANDMARKS), "range", std=0.1, bias=0.5),
            "gnss": models.Sensor(models.Position(), ("e", "n"), **gnss),
        },
    )


PRIOR = {"x": 0.3, "y": 0.3, "heading": 0.1}


def run(filt, model, data, **options):
    return filtrax.run(
        filt,
        model,
        data.prior,
        data.readings,
        inputs=data.inputs,
        observed=data.observed,
        **options,
    )


@pytest.mark.long
def test_all_filters_run_on_a_log_and_find_the_truth():
    model = model_of()
    data = log_of(bias=0.5).events(model).trajectory(PRIOR, truth=TRUTH)
    space, errors = model.state_space, {}
    filters = {
        "ekf": filtrax.ExtendedKalmanFilter(),
        "ukf": filtrax.UnscentedKalmanFilter(),
        "particles": filtrax.ParticleFilter(300),
    }
    for name, filt in filters.items():
        beliefs = run(filt, model, data, key=jr.key(0)).beliefs
        found = filtrax.metrics.component_errors(beliefs, data.states, space)
        errors[name] = [float(found[c]) for c in space.names]
    assert np.max(list(errors.values())) < 0.15
    np.testing.assert_allclose(errors["ekf"], errors["ukf"], atol=0.01)


def test_one_reading_at_a_time_gives_the_same_beliefs():
    model = model_of()
    data = log_of(20).events(model).trajectory(PRIOR, truth=TRUTH)
    whole = run(filtrax.ExtendedKalmanFilter(), model, data).beliefs
    loop = filtrax.online(filtrax.ExtendedKalmanFilter(), model)
    belief = loop.init(data.prior)
    for t in range(data.num_steps):
        known = jax.tree.map(lambda leaf, t=t: leaf[t], (data.readings, data.inputs, data.observed))
        belief, _ = loop.step(belief, known[0], inputs=known[1], observed=known[2])
    np.testing.assert_allclose(belief.mean, whole.mean[-1], rtol=1e-10, atol=1e-12)


def test_gradients_of_the_likelihood_by_all_parameters_are_those_of_differences():
    model = model_of(delay=0.05, lever_arm=(0.1, 0.2), scale=1.02)
    data = log_of(40).events(model).trajectory(PRIOR, truth=TRUTH)
    mask = filtrax._given.parameters(model)
    learned, rest = eqx.partition(model, mask)
    flat, restore = jax.flatten_util.ravel_pytree(learned)
    assert flat.size == 9

    @eqx.filter_jit
    def likelihood(flat):
        whole = eqx.combine(restore(flat), rest)
        return run(filtrax.ExtendedKalmanFilter(), whole, data).log_likelihood

    gradient = eqx.filter_jit(jax.grad(likelihood))(flat)
    for index, axis in enumerate(1e-5 * np.eye(flat.size)):
        difference = (likelihood(flat + axis) - likelihood(flat - axis)) / 2e-5
        assert gradient[index] == pytest.approx(float(difference), rel=1e-4, abs=1e-4)
    assert (jnp.abs(gradient) > 1e-6).all()


@pytest.mark.long
def test_training_on_windows_finds_the_bias_and_leaves_landmarks_where_they_are():
    model = model_of()
    data = log_of().events(model).trajectory(PRIOR, truth=TRUTH)
    windows = filtrax.trajectory.windows(data, 30, stride=15)
    _, trained, history = filtrax.fit(
        filtrax.ExtendedKalmanFilter(), model, windows, loss=filtrax.losses.nll,
        optimizer=optax.adam(0.02), num_steps=60, key=jr.key(0),
    )  # fmt: skip
    uwb = trained.observe.sensors[0]
    assert float(uwb.bias) == pytest.approx(0.7, abs=0.05)
    assert (uwb.quantity.landmarks.positions == LANDMARKS.positions).all()
    assert history.loss[-10:].mean() < history.loss[:10].mean()


def test_a_model_is_saved_and_loaded(tmp_path):
    model, other = model_of(), model_of(std=0.4)
    filtrax.save(tmp_path / "model.npz", filtrax.ExtendedKalmanFilter(), other)
    _, loaded = filtrax.load(tmp_path / "model.npz", filtrax.ExtendedKalmanFilter(), model)
    np.testing.assert_allclose(loaded.sensor.sensors[1].noise.std, [0.4, 0.4])


def test_readings_that_are_simulated_have_the_noise_of_their_sensors():
    model = model_of()
    data = log_of(400, bias=0.5).events(model).trajectory(PRIOR, truth=TRUTH)
    drawn = filtrax.simulate(model, data.prior, inputs=data.inputs, key=jr.key(1))
    bound = filtrax._given.unwrap(model).bind(None)
    expected = jax.vmap(bound.observe)(drawn.states, data.inputs)
    errors = np.asarray(jnp.concatenate(drawn.readings, 1) - expected)
    np.testing.assert_allclose(errors.std(0), [0.1, 0.2, 0.2], rtol=0.1)


def test_names_of_parameters_are_all_that_may_be_trained():
    """Rejects a number that training changes and no table would show."""
    motion = models.DrivenPose(
        *("odo.v", "odo.w"),
        **{"distance_std": 0.05, "drift_std": filtrax.given(0.02), "speed_scale": 1.0},
        turn_bias=models.RandomWalk(0.01),
    )
    sensors = {
        "uwb": models.Sensor(models.Range(LANDMARKS), "range", std=0.1, bias=[0.5, 0.1, 0.2]),
        "gnss": models.Sensor(
            models.Position(), ("e", "n"), std=[0.2, 0.3], bias=models.RandomWalk(0.1), delay=0.1
        ),
    }
    model = models.build(motion, sensors)
    names = models.parameter_names(model)
    assert set(names) == {
        *("distance", "speed_scale", "turn_bias.walk", "uwb.std", "uwb.bias"),
        *("gnss.std", "gnss.delay", "gnss.bias.e.walk", "gnss.bias.n.walk"),
    }
    trainable = filtrax.training.parts.trainable
    everything = trainable(None, model, ["model"])
    assert jax.tree.leaves(trainable(None, model, list(names.values()))) == jax.tree.leaves(
        everything
    )
    bias = trainable(None, model, [names["uwb.bias"]])[1]
    assert bias.observe.sensors[0].bias
    assert sum(jax.tree.leaves(bias)) == 1
