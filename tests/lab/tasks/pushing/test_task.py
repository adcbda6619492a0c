"""The pushing task: its data, what is reported of it, and how it is seen."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny_pushing
from filtrax.lab import config
from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.reproduction import Plan, read_table
from filtrax.lab.tasks.pushing import PushingModel, PushingTask
from filtrax.lab.tasks.pushing.render import OBJECT_LABEL
from filtrax.lab.tasks.pushing.scenes import image_of
from filtrax.lab.tasks.pushing.task import PERTURBATIONS, _draw_looks
from filtrax.trajectory import random_subsequence

TASK = tiny_pushing.TASK
CIRCLE = tiny_pushing.OBJECTS.index("ellip1")
CONFIGS = Path(__file__).parents[4] / "configs"


def test_states_are_those_of_the_moments_after_the_pushes():
    # Rejects pushes of the step after, as the paper's code has them, and states that are shifted.
    data, sequences = tiny_pushing.data(), TASK.sequences("train")
    tips = np.asarray(sequences.tips)
    np.testing.assert_array_equal(data.inputs, tips[:, 1:-1] - tips[:, :-2])
    np.testing.assert_array_equal(data.readings["tip"], tips[:, 1:-1])
    np.testing.assert_array_equal(data.readings["next_tip"], tips[:, 2:])
    np.testing.assert_array_equal(data.readings["pose"], sequences.poses[:, 1:])
    np.testing.assert_array_equal(data.states[..., :2], sequences.poses[:, 1:, :2])
    np.testing.assert_array_equal(data.states[..., 5:7], sequences.points[:, 1:])
    np.testing.assert_array_equal(data.states[..., 9], sequences.touches[:, 1:])
    np.testing.assert_array_equal(data.initial[:, 5:7], sequences.points[:, 0])
    np.testing.assert_array_equal(data.context["first"]["pose"], sequences.poses[:, 0])
    before = np.concatenate([data.initial[:, None], data.states[:, :-1]], 1)
    free = (before[..., 9] == 0) & (np.asarray(data.states)[..., 9] == 0)
    assert free.any()
    np.testing.assert_allclose((before[..., 5:7] + data.inputs)[free], data.states[free][:, 5:7])
    # An object that is not touched stays where it is.
    still = before[..., 9] == 0
    np.testing.assert_array_equal(before[still][:, :3], np.asarray(data.states)[still][:, :3])
    # Friction is that of the sequence.
    for place, numbers in ((3, sequences.friction), (4, sequences.half_angle)):
        expected = np.broadcast_to(np.asarray(numbers)[:, None], data.states.shape[:2])
        np.testing.assert_array_equal(data.states[..., place], expected)


def test_rotations_count_from_the_first_moment_with_the_symmetry_of_the_object():
    data, poses = tiny_pushing.data(), np.asarray(TASK.sequences("train").poses)
    turned = poses[:, 1:, 2] - poses[:, :1, 2]
    for number, (name, period) in enumerate(zip(TASK.objects, (90.0, None, 360.0), strict=True)):
        assert tiny_pushing.NAMES[int(data.context["shape"][number])] == name
        if period is None:
            continue
        rotation = np.asarray(data.states)[number, :, 2]
        rest = (turned[number] - rotation) / period
        np.testing.assert_allclose(rest, np.round(rest), atol=1e-9)
        assert (np.abs(rotation) <= period / 2).all()
    np.testing.assert_array_equal(data.states[CIRCLE, :, 2], 0.0)
    np.testing.assert_array_equal(np.argwhere(data.undefined), [[CIRCLE, 2], [CIRCLE + 3, 2]])


def test_subsequences_of_a_circle_start_anywhere():
    circle = tiny_pushing.sequence(CIRCLE)
    draw = jax.vmap(lambda key: random_subsequence(circle, 4, key=key).initial)
    starts = draw(jax.random.split(jax.random.key(0), 64))
    assert len(np.unique(np.asarray(starts), axis=0)) == 5


def test_looks_and_arms_depend_on_seed_and_split_but_not_on_the_number_of_sequences():
    context = tiny_pushing.data().context
    key = jax.random.fold_in(jax.random.key(TASK.seed), 0)
    looks, arms = _draw_looks(key, jnp.zeros(3, int))
    for ours, theirs in zip(
        jax.tree.leaves((context["look"], context["arm"])),
        jax.tree.leaves((looks, arms)),
        strict=True,
    ):
        np.testing.assert_allclose(ours[:3], theirs, atol=1e-12)
    for other in (dataclasses.replace(TASK, seed=1).data("train"), TASK.data("test")):
        for name in ("arm", "look", "first"):
            ours, theirs = (jax.tree.leaves(c[name]) for c in (context, other.context))
            assert all((a != b).any() for a, b in zip(ours, theirs, strict=True))
    assert TASK.num_sequences("test") == 6
    assert dataclasses.replace(TASK, seed=3, objects=("hex",)).shape == TASK.shape


def test_frames_and_visible_pixels_are_those_of_the_images():
    data, one = tiny_pushing.data(), tiny_pushing.sequence(2)
    frames, visible = TASK.frames(one), TASK.details(data).visible
    assert visible.shape == (6, 8)
    for step in (0, 7):
        reading = jax.tree.map(lambda leaf, step=step: leaf[step], one.readings)
        image = jax.jit(lambda reading: image_of(reading, one.context, TASK.camera))(reading)
        np.testing.assert_array_equal(frames[step], np.round(255 * np.asarray(image.rgb)))
        assert int(visible[2, step]) == (np.asarray(image.segmentation) == OBJECT_LABEL).sum() > 0
    assert TASK.drawing.view is None
    assert TASK.drawing.companions(one)["pusher"].shape == (8, 2)


def test_scores_are_mean_errors_of_position_and_rotation_and_circles_have_none():
    rng = np.random.default_rng(0)
    differences = rng.normal(size=(2, 6, 8, 10))
    scores = TASK.scores(tiny_pushing.data(), differences)
    expected = np.sqrt(differences[..., 0] ** 2 + differences[..., 1] ** 2).mean(-1)
    np.testing.assert_allclose(scores["translation"], expected)
    rotation = np.abs(differences[..., 2]).mean(-1)
    turns = np.arange(6) % 3 != CIRCLE
    np.testing.assert_allclose(scores["rotation"][:, turns], rotation[:, turns])
    assert np.isnan(scores["rotation"][:, ~turns]).all()


def test_the_papers_perturbations_leave_the_rotation_alone():
    assert TASK.perturbations().shape == (3, 10)
    assert (TASK.perturbations()[:, 2] == 0).all()
    # They are draws from the prior: none is improbably far.
    stds = np.sqrt(np.diagonal(tiny_pushing.data().initial_covariance[0]))
    assert (np.abs(np.asarray(PERTURBATIONS)) <= 2 * stds).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"objects": ("rect",)}, "`objects` .* Did you mean 'rect[123]'"),
        ({"objects": ()}, "at least one object"),
        ({"num_test_steps": 0}, "num_test_steps"),
        ({"image_size": (0, 64)}, "image_size"),
    ],
)
def test_tasks_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        PushingTask(**fields)


def test_images_that_are_too_small_for_the_sensor_are_refused():
    task = dataclasses.replace(TASK, image_size=(16, 24))
    with pytest.raises(ValueError, match="at least 23 x 23 pixels"):
        jax.eval_shape(lambda: task.build(PushingModel(), key=jax.random.key(0)))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("pushing_*.toml")), ids=lambda path: path.stem)
def test_configurations_can_be_read_and_phases_of_their_sensor_are_one_program(path):
    # Rejects terms that the task does not have, and phases that would each be compiled anew.
    experiment = config.read(Experiment, path)
    assert experiment.name == path.stem
    assert isinstance(experiment.task, PushingTask)
    phases = [stage for stage in experiment.stages if stage.objective == "sensor"]
    same = {dataclasses.replace(phase.program, num_epochs=1) for phase in phases}
    assert len(same) == min(len(phases), 1)


TRAINED = {
    "configurations": lambda: [
        stage
        for path in CONFIGS.glob("pushing_*.toml")
        for stage in config.read(Experiment, path).stages
    ],
    "table": lambda: [
        stage
        for cell in Plan().cells(read_table("pushing_process"))
        for stage in cell.experiment.stages
    ],
}


@pytest.mark.parametrize("stages", TRAINED.values(), ids=TRAINED)
def test_the_noise_of_the_process_is_not_trained_beside_its_squared_error(stages):
    # Rejects a loss that is a thousand times as large: clipped by norm, it leaves noise as it was.
    process = [stage for stage in stages() if stage.objective == "process"]
    noisy = [stage for stage in process if "model.process_noise" in stage.train]
    assert noisy
    assert not any(stage.terms for stage in noisy)


def test_batches_that_the_data_cannot_fill_are_refused():
    with pytest.raises(ValueError, match="frames_per_batch"):
        Experiment(task=TASK, stages=(StageSettings(length=8, frames_per_batch=80),))
    assert jnp.asarray(tiny_pushing.data().initial_covariance).shape == (6, 10, 10)
