"""The models of the pushing task: networks by their numbers, modes, and what is known at best."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny_pushing
from filtrax._given import parameters
from filtrax.filters import ExtendedKalmanFilter, IMMFilter, filter_trajectory
from filtrax.filters._run import sense_trajectory
from filtrax.lab.config.filters import Lstm
from filtrax.lab.tasks.pushing import PushingModel, PushingTask, heads, reference
from filtrax.lab.tasks.pushing.camera import Camera
from filtrax.lab.tasks.pushing.model import PAPER_PROCESS_STDS, PAPER_SENSOR_STDS, PROCESS_FLOOR
from filtrax.lab.tasks.pushing.physics import process as analytical
from filtrax.lab.tasks.pushing.process import (
    InContact,
    LearnedPush,
    equations_of_pushing,
    free_motion,
)
from filtrax.linalg import gaussian_log_density
from filtrax.noise import FixedNoise, constant_noise
from filtrax.switching import SwitchingProcess, in_mode, switching
from filtrax.training.parts import trainable
from systems import as_float32

STATE = jnp.asarray([10.0, -20.0, 30.0, 12.0, 14.0, -30.0, -25.0, 0.9, 0.4, 0.2])
PUSH = jnp.asarray([8.0, 3.0])
REFERENCE = PushingModel(process="reference", process_noise="reference", sensor="reference")


@functools.cache
def built(**settings):
    return tiny_pushing.TASK.build(PushingModel(**settings), key=jax.random.key(0))


def shapes(task=tiny_pushing.TASK, **settings):
    """A model without its numbers."""
    build = lambda: task.build(PushingModel(**settings), key=jax.random.key(0))  # noqa: E731
    return eqx.filter_eval_shape(build)


def count(part):
    """How many numbers may be trained."""
    is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    blank = lambda leaf: jnp.zeros(leaf.shape, leaf.dtype) if is_shape(leaf) else leaf  # noqa: E731
    part = jax.tree.map(blank, part)
    trained = eqx.filter(part, parameters(part))
    return sum(leaf.size for leaf in jax.tree.leaves(trained))


def test_process_and_its_noise_have_as_many_parameters_as_the_papers():
    model = shapes(PushingTask())
    assert count(model.process) == 54_026
    assert count(model.process_noise) == (12 * 128) + (128 * 64 + 64) + (64 * 10 + 10) + 10
    full = shapes(PushingTask(), covariance="full")
    assert count(full.process_noise) - count(model.process_noise) == (65 + 1) * 45
    # One more input; what is tuned by hand has nothing to train.
    assert count(shapes(friction_input=True).process_noise) - count(model.process_noise) == 128
    assert count(shapes(process_noise="constant").process_noise) == 10


def test_encodings_are_those_that_likelihood_and_recurrent_network_need():
    assert shapes().sensor.encoding is heads.no_encoding
    chosen = {"learned": {"likelihood": "learned"}, "recurrent": {"encoding": "recurrent"}}
    parts = ("position", "rotation", "contact")
    sizes = {}
    for name, settings in chosen.items():
        encoding = shapes(**settings).sensor.encoding
        dense = [getattr(encoding, part) for part in parts]
        dense[0] = dense[0].dense
        sizes[name] = sum(layers.layers[-1].out_features for layers in dense)
    assert sizes == {"learned": 64, "recurrent": 128}


def test_noise_that_is_tuned_by_hand_stays_as_it_is():
    model = built(process="analytical", process_noise="paper", sensor_noise="paper")
    assert isinstance(model.process_noise, FixedNoise)
    stds = np.diagonal(model.process_noise(STATE, PUSH))
    np.testing.assert_allclose(stds, PAPER_PROCESS_STDS)
    np.testing.assert_allclose(np.diagonal(model.sensor.noise(None)), PAPER_SENSOR_STDS)
    with pytest.raises(ValueError, match="no parameters to train"):
        trainable(None, model, ("model.sensor.noise",))
    mine = PushingModel(process_noise="hand-tuned", process_stds=(2.0,) * 10)
    own = shapes(process_noise="hand-tuned", process_stds=(2.0,) * 10)
    assert isinstance(own.process_noise, FixedNoise)
    # All of these are one program.
    assert mine.program == PushingModel(process_noise="paper").program


def test_a_learned_process_starts_with_nothing_that_moves_and_q_with_one():
    model = built(sensor="reference")
    assert isinstance(model.process, LearnedPush)
    np.testing.assert_allclose(model.process(STATE, PUSH), STATE, atol=0.5)
    np.testing.assert_allclose(np.diagonal(model.process_noise(STATE, PUSH)), 1.0, atol=0.1)
    # Q does not see l; the process does.
    other = STATE.at[3].set(40.0)
    same = model.process_noise(other, PUSH) == model.process_noise(STATE, PUSH)
    assert same.all()
    change, other_change = (model.process(state, PUSH) - state for state in (STATE, other))
    assert (change != other_change).all()


def test_a_normal_that_is_hardly_known_blows_up_no_covariance():
    # Rejects the equations as they are: the direction of n changes by 1 / |n|.
    state = STATE.at[7:].set(jnp.asarray([6e-4, -4e-4, 1.0]))
    slopes = {
        process: np.abs(np.asarray(jax.jacfwd(process)(state, PUSH))).max()
        for process in (analytical, equations_of_pushing)
    }
    assert slopes[equations_of_pushing] < 20 < 1000 < slopes[analytical]
    np.testing.assert_array_equal(equations_of_pushing(state, PUSH)[7:9], state[7:9])
    known = STATE.at[9].set(1.0)
    np.testing.assert_array_equal(equations_of_pushing(known, PUSH), analytical(known, PUSH))


def test_free_motion_moves_the_pusher_alone_and_contact_pushes_whatever_the_state_says():
    free = np.asarray(free_motion(STATE, PUSH))
    np.testing.assert_allclose(free[:5], STATE[:5])
    np.testing.assert_allclose(free[5:], [-22.0, -22.0, 0.0, 0.0, 0.0])
    touched = InContact(analytical)(STATE, PUSH)
    np.testing.assert_array_equal(touched, analytical(STATE.at[9].set(1.0), PUSH))
    assert jnp.hypot(*(touched - STATE)[:2]) > 1.0


def test_chances_of_contact_follow_the_state_at_first():
    transitions = built(sensor="reference", modes="contact").process.transitions
    for touching, expected in ((0.0, 0.018), (0.5, 0.5), (1.0, 0.982)):
        chances = jnp.exp(transitions(STATE.at[9].set(touching), PUSH))
        np.testing.assert_allclose(chances[:, 1], expected, atol=0.02)


@pytest.mark.long
def test_the_switching_filter_tells_contact_from_free_motion():
    # Exact observations of the pose tell whether the object was moved; the coming push is open.
    task = dataclasses.replace(tiny_pushing.TASK, num_test_steps=20)
    stds = (*PAPER_PROCESS_STDS[:5], 2.0, 2.0, 0.5, 0.5, 0.5)
    noise = {"process_noise": "hand-tuned", "process_stds": stds}
    settings = PushingModel("analytical", sensor="reference", modes="contact", **noise)
    model = task.build(settings, key=jax.random.key(0))
    assert isinstance(model.process, SwitchingProcess)
    data = task.data("test")

    @jax.jit
    @jax.vmap
    def chances(trajectory):
        beliefs = filter_trajectory(IMMFilter(ExtendedKalmanFilter()), model, trajectory).beliefs
        return jnp.exp(beliefs.log_weights[:, 1])

    in_contact = np.asarray(chances(data))
    before = np.concatenate([data.initial[:, None], data.states[:, :-1]], 1)
    moved = np.abs(np.asarray(data.states)[..., :2] - before[..., :2]).max(-1) > 2.0
    free = before[..., 9] == 0
    assert moved.any()
    assert in_contact[moved].mean() > 0.9 > 0.5 > in_contact[free].mean()


@pytest.mark.long
def test_beliefs_at_the_smallest_process_noise_have_a_density_in_single_precision():
    # Rejects a floor of 1e-5 for all components, with which one of twenty sequences has none.
    task = dataclasses.replace(tiny_pushing.TASK, num_validation=100, num_steps=20)
    settings = PushingModel("analytical", sensor="reference", modes="contact")
    model = task.build(settings, key=jax.random.key(0))
    contact = in_mode(model, switching(model).modes[1])
    floor = FixedNoise(constant_noise(np.sqrt(PROCESS_FLOOR)))
    contact = dataclasses.replace(contact, process_noise=floor)

    @jax.jit
    @jax.vmap
    def densities(trajectory):
        sensed = as_float32(sense_trajectory(contact, trajectory))
        beliefs = filter_trajectory(ExtendedKalmanFilter(), *sensed).beliefs
        return jax.vmap(gaussian_log_density)(jnp.zeros_like(beliefs.mean), beliefs.root)

    found = densities(task.data("validation"))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()


def residuals(model, data):
    """Of single steps, and which of them began in contact."""

    @jax.jit
    @jax.vmap
    def each(trajectory):
        bound = model.bind(trajectory.context)
        before = jnp.concatenate([trajectory.initial[None], trajectory.states[:-1]])
        predicted = jax.vmap(bound.process)(before, trajectory.inputs)
        difference = jax.vmap(bound.state_space.difference)(trajectory.states, predicted)
        covariance = jax.vmap(bound.process_noise.covariance)(before, trajectory.inputs)
        return difference, jnp.diagonal(covariance, axis1=1, axis2=2), before[:, 9] > 0.5

    return map(np.asarray, each(data))


@pytest.mark.long
def test_the_reference_process_is_the_simulator_but_for_its_disturbances():
    task = PushingTask(objects=tiny_pushing.OBJECTS, num_train=60)
    data = task.data("train")
    model = task.build(REFERENCE, key=jax.random.key(0))
    differences, variances, touching = residuals(model, data)
    np.testing.assert_allclose(differences[~touching][:, :5], 0.0, atol=1e-4)
    # Half of all pushes are predicted better than by the equations of pushing.
    equations = task.build(
        dataclasses.replace(REFERENCE, process="analytical"), key=jax.random.key(0)
    )
    others, _, _ = residuals(equations, data)
    medians = [np.median(np.abs(d[touching]), 0)[:3] for d in (differences, others)]
    assert (medians[0] < 0.9 * medians[1]).all()
    # The stated variances of the contact are those of the data, those of the pose about so.
    ratios = (differences**2 / variances)[:, :, 5:].mean((0, 1))
    np.testing.assert_allclose(ratios, 1.0, atol=0.35)
    typical = np.median(np.abs(differences / np.sqrt(variances))[touching], 0)[:3]
    assert ((typical > 0.1) & (typical < 0.8)).all()


@pytest.mark.long
def test_the_reference_sensor_reads_to_a_pixel_what_is_not_hidden():
    sensor = reference.ReferenceSensor(Camera(96, 128))
    one = tiny_pushing.sequence(0)
    measure = jax.jit(
        lambda readings, arm: jax.vmap(
            lambda reading: sensor(reading, None, one.context | {"arm": arm})
        )(readings)
    )
    aside = jnp.asarray([0.1, 0.35, 0.55])
    measured = measure(one.readings, aside)
    expected = np.concatenate([one.states[:, :3], one.states[:, 5:]], 1)
    errors = np.asarray(measured.value) - expected
    stds = np.sqrt(np.diagonal(measured.covariance, axis1=1, axis2=2))
    # Uniform errors are within √3 standard deviations; pixels are not quite rectangles.
    assert (np.abs(errors) <= 1.8 * stds + 1e-9).all()
    assert (stds[:, :2] < 4.0).all()
    assert np.asarray(measured.observed).all()
    # An arm between camera and object, along the way from the one to the other.
    behind = jnp.asarray([0.5, 0.0, 0.45])
    hidden = np.asarray(measure(one.readings, behind).observed)
    assert not hidden[:, 3:].any()


def test_a_recurrent_network_without_an_encoding_sees_the_observation():
    model, one = shapes(sensor="reference"), tiny_pushing.sequence(0)
    task, key = tiny_pushing.TASK, jax.random.key(0)
    build = lambda model: Lstm(hidden_size=4).build(task, model, one, key=key)  # noqa: E731
    assert eqx.filter_eval_shape(build, model).cells[0].input_size == 8 + 2 + 10 + 10


def test_a_reference_that_is_bound_to_no_object_says_so():
    with pytest.raises(ValueError, match="is not bound to a sequence"):
        reference.ReferenceProcess()(STATE, PUSH)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"process_stds": (1.0,) * 9 + (0.001,)}, "process_stds must be .* 0.0032, the roots"),
        ({"sensor_stds": (1.0,) * 7 + (0.03,)}, "sensor_stds must be .* at least 0.0316"),
        ({"likelihood": "learned", "encoding": "recurrent"}, 'needs sensor "paper" and encoding'),
        ({"likelihood": "learned", "sensor": "reference"}, 'needs sensor "paper" and encoding'),
    ],
)
def test_models_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PushingModel(**settings)
