"""Bad input gets a clear error before anything runs.

Each message must name the argument, what was expected and what came.
"""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import filtrax
from filtrax.networks import Perceptron
from systems import POLAR, POSE, beacon_model, beacon_prior, beacon_trajectory, drive, see_beacon

EKF = filtrax.ExtendedKalmanFilter()
TRAJECTORY = beacon_trajectory(4)


def model_with(**parts):
    defaults = {
        "state_space": POSE,
        "observation_space": POLAR,
        "process": drive,
        "process_noise": filtrax.constant_noise([0.1, 0.1, 0.1]),
        "observe": see_beacon,
        "sensor": filtrax.DirectSensor(filtrax.constant_noise([0.1, 0.1])),
    }
    return filtrax.StateSpaceModel(**(defaults | parts))


def run(filt=EKF, model=None, **changes):
    arguments = {
        "prior": beacon_prior(),
        "readings": TRAJECTORY.readings,
        "inputs": TRAJECTORY.inputs,
    } | changes
    model = beacon_model() if model is None else model
    return filtrax.run(filt, model, **arguments, key=jr.key(0)).beliefs


def fit(**changes):
    arguments = {
        "loss": filtrax.losses.nll,
        "optimizer": optax.adam(1e-2),
        "num_steps": 1,
        "key": jr.key(0),
    } | changes
    data = arguments.pop("data", TRAJECTORY)
    return filtrax.fit(EKF, beacon_model(), data, **arguments)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"process": lambda x, u: x[:2]}, r"process\(state, inputs\).*\(3,\).*\(2,\)"),
        (
            {"process_noise": filtrax.constant_noise([0.1, 0.1])},
            r"process_noise.*\(3, 3\).*\(2, 2\)",
        ),
        ({"observe": lambda x, u: x}, r"observe\(state, inputs\).*\(2,\).*\(3,\)"),
        (
            {"sensor": filtrax.DirectSensor(filtrax.constant_noise([0.1]))},
            r"covariance of the sensor.*\(2, 2\).*\(1, 1\)",
        ),
        (
            {"sensor": lambda r, u, c, *, key: filtrax.Measurement(r[:1], jnp.eye(1))},
            r"value of the sensor.*\(2,\).*\(1,\)",
        ),
    ],
)
def test_parts_of_a_model_that_do_not_fit(parts, message):
    with pytest.raises(ValueError, match=message):
        run(model=model_with(**parts))


def test_a_prior_of_the_wrong_size():
    with pytest.raises(ValueError, match=r"prior.mean.*\(3,\).*\(2,\)"):
        run(prior=filtrax.Gaussian(jnp.zeros(2), jnp.eye(2)))


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.eye(2), r"covariance.*\(3, 3\).*\(2, 2\)"),
        (np.array([[1, 0.5, 0], [0, 1, 0], [0, 0, 1]]), "symmetric"),
        (np.diag([1.0, 1.0, -0.1]), "positive semi-definite"),
        (np.diag([1.0, 1.0, np.nan]), "finite"),
    ],
)
def test_a_covariance_that_is_none(covariance, message):
    with pytest.raises(ValueError, match=message):
        filtrax.Gaussian(jnp.zeros(3), jnp.asarray(covariance))


def test_sequences_of_different_length():
    with pytest.raises(ValueError, match=r"`inputs`.*length 4.*\(3, 2\)"):
        run(inputs=TRAJECTORY.inputs[:3])
    with pytest.raises(ValueError, match=r"`observed`.*length 4.*\(5,\)"):
        run(observed=jnp.ones(5, bool))


def test_masks_that_do_not_fit():
    with pytest.raises(ValueError, match=r"`observed`.*\(2,\).*\(3,\)"):
        run(observed=jnp.ones((4, 3), bool))
    with pytest.raises(ValueError, match=r"boolean.*float"):
        run(observed=jnp.ones(4))


def test_readings_that_are_not_finite_and_not_masked():
    readings = TRAJECTORY.readings.at[2, 1].set(jnp.nan)
    with pytest.raises(ValueError, match=r"`readings`.*finite.*step 2.*`observed`"):
        run(readings=readings)
    seen = jnp.ones((4, 2), bool).at[2, 1].set(False)
    assert jnp.isfinite(run(readings=readings, observed=seen).mean).all()
    with pytest.raises(ValueError, match="finite"):
        fit(
            data=filtrax.Trajectory(
                TRAJECTORY.initial,
                TRAJECTORY.initial_covariance,
                readings,
                inputs=TRAJECTORY.inputs,
                states=TRAJECTORY.states,
            )
        )
    loop = filtrax.online(EKF, beacon_model())
    belief = loop.init(beacon_prior())
    bad, inputs = np.asarray([1.0, np.inf]), np.zeros(2)
    with pytest.raises(ValueError, match="finite"):
        loop.step(belief, bad, inputs=inputs)
    belief, _ = loop.step(belief, bad, inputs=inputs, observed=np.asarray([True, False]))
    assert jnp.isfinite(belief.mean).all()


def test_lists_are_read_as_arrays():
    readings = [[float(value) for value in row] for row in TRAJECTORY.readings]
    np.testing.assert_array_equal(run(readings=readings).mean, run().mean)


def test_counts_that_are_too_small():
    with pytest.raises(ValueError, match=r"num_particles.*at least 1.*0"):
        filtrax.ParticleFilter(num_particles=0)
    with pytest.raises(ValueError, match=r"iterations.*at least 1.*0"):
        filtrax.ExtendedKalmanFilter(iterations=0)
    with pytest.raises(ValueError, match=r"num_samples.*3 components.*got 3"):
        run(filtrax.MonteCarloUnscentedKalmanFilter(num_samples=3))
    with pytest.raises(ValueError, match=r"n \+ kappa > 0.*kappa=-3"):
        run(filtrax.UnscentedKalmanFilter(filtrax.Scaling(kappa=-3.0)))


def test_an_unknown_name_in_train():
    with pytest.raises(ValueError, match=r"model\.sensr.*Did you mean 'sensor'"):
        fit(train=("model.sensr.noise",))
    with pytest.raises(ValueError, match=r"modle.*Did you mean 'model'"):
        fit(train=("modle",))
    with pytest.raises(ValueError, match="no parameters"):
        fit(train=("model.process",))


def test_a_component_mask_with_a_learned_likelihood():
    sensor = filtrax.NetworkSensor(
        lambda reading, inputs, context, *, key: reading,
        lambda features: features,
        filtrax.constant_noise([0.1, 0.1]),
    )
    likelihood = filtrax.LearnedLikelihood(Perceptron((4, 4, 1), key=jr.key(0)))
    model = model_with(sensor=sensor, likelihood=likelihood)
    filt = filtrax.ParticleFilter(num_particles=10)
    with pytest.raises(ValueError, match="mask per component"):
        run(filt, model, observed=jnp.ones((4, 2), bool))
    assert run(filt, model, observed=jnp.ones(4, bool)).states.shape == (4, 10, 3)


def test_what_fit_needs():
    with pytest.raises(ValueError, match="either `loss` or `objective`"):
        fit(loss=None)
    with pytest.raises(ValueError, match=r"num_steps.*at least 1.*0"):
        fit(num_steps=0)
    with pytest.raises(ValueError, match=r"clip_norm.*positive"):
        fit(clip_norm=0.0)
    with pytest.raises(ValueError, match="true states"):
        fit(
            data=filtrax.Trajectory(
                TRAJECTORY.initial,
                TRAJECTORY.initial_covariance,
                TRAJECTORY.readings,
                inputs=TRAJECTORY.inputs,
            )
        )


def test_angles_that_the_space_does_not_have():
    with pytest.raises(ValueError, match=r"angles.*headng.*Did you mean 'heading'"):
        filtrax.Space(("x", "heading"), angles=("headng",))


def test_a_start_value_under_its_floor():
    with pytest.raises(ValueError, match=r"under its floor.*0\.1.*0\.04"):
        filtrax.constant_noise([0.1, 1.0], floor=0.04)


def test_numbers_of_inputs_that_are_not_finite_are_named_by_step_and_component():
    inputs = TRAJECTORY.inputs.at[2, 1].set(jnp.nan)
    with pytest.raises(ValueError, match=r"`inputs` must be finite.*step 2, component 1: nan"):
        run(inputs=inputs)
    named = {"dt": jnp.asarray([0.1, 0.1, 0.1, jnp.inf]), "command": TRAJECTORY.inputs}
    model = model_with(process=lambda state, inputs: drive(state, inputs["command"]))
    with pytest.raises(ValueError, match=r"`inputs\['dt'\]` must be finite.*step 3: inf"):
        run(model=model, inputs=named)


def test_training_data_that_are_not_finite_are_no_divergence():
    data = filtrax.trajectory.stack([TRAJECTORY, TRAJECTORY])
    bad = data.states.at[1, 2, 0].set(jnp.nan)
    where = r"trajectory 1, step 2, component 0: nan"
    with pytest.raises(ValueError, match=r"`data\.states` must be finite.*" + where):
        fit(data=dataclasses.replace(data, states=bad))
    labelled = jnp.ones((2, 4), bool).at[1, 2].set(False)
    fit(data=dataclasses.replace(data, states=bad, labelled=labelled), num_steps=1)
    inputs = data.inputs.at[1, 2, 0].set(jnp.nan)
    with pytest.raises(ValueError, match=r"`data\.inputs` must be finite.*" + where):
        fit(data=dataclasses.replace(data, inputs=inputs))


def test_times_since_1970_are_refused_where_single_precision_makes_them_one():
    stamps = 1.7e9 + 0.1 * np.arange(4.0)
    check = filtrax.filters._run.check_known_numbers
    check("inputs", {"t": stamps})  # double precision keeps them
    with jax.enable_x64(False):
        with pytest.raises(ValueError, match=r"`inputs\['t'\]` loses its differences"):
            check("inputs", {"t": stamps})
        check("inputs", {"t": stamps - stamps[0], "constant": np.full(4, 1.7e9)})
