"""The KITTI task: its data, what is reported of it, and that filters train on it."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
from filtrax.filters import RecurrentFilter
from filtrax.lab import config
from filtrax.lab.config.filters import Ekf, Lstm
from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.experiments import building, run
from filtrax.lab.tasks.kitti import Fold, Frames, KittiModel, KittiTask
from filtrax.lab.tasks.kitti.model import observe
from filtrax.lab.tasks.kitti.process import motion
from filtrax.lab.tasks.kitti.recordings.files import write_drive
from filtrax.lab.tasks.kitti.streets import collection
from filtrax.metrics import end_errors
from filtrax.training import Training, trainer
from tiny_kitti import SIZE, curved_drive, folder, tiny_task


def test_data_are_windows_of_the_folder():
    task = tiny_task()
    data = {name: task.data(name) for name in ("train", "validation", "test")}
    # Two drives, two cameras, mirrored or not, two windows each; 12 frames have three starts here.
    counts = {name: len(part.initial) for name, part in data.items()}
    assert counts == {"train": 13, "validation": 3, "test": 12}
    assert counts == {name: task.num_sequences(name) for name in counts}
    assert data["test"].context["frames"].shape == (12, 5, *SIZE, 3)
    assert data["test"].inputs.shape == (12, 4, 1)
    assert {bool(flip) for flip in data["test"].context["mirrored"]} == {False, True}
    plain = dataclasses.replace(task, mirrored=False, mirrored_test=False)
    assert [plain.num_sequences(name) for name in counts] == [6, 2, 6]
    assert not plain.data("train").context["mirrored"].any()


def test_drives_are_read_once_for_all_splits_and_folds():
    assert tiny_task().drive("00") is tiny_task(split=Fold("02"), seed=3).drive("00")


def test_folds_can_train_as_one_ensemble():
    first, second = tiny_task(split=Fold("00")), tiny_task(split=Fold("02"), seed=3)
    assert first.shape == second.shape
    shapes = [jax.tree.map(jnp.shape, task.data("train")) for task in (first, second)]
    assert shapes[0] == shapes[1]
    cut = Frames("00", (0, 6), (6, 12), (12, 18))
    assert tiny_task(split=cut).shape not in (first.shape, tiny_task(split=Frames()).shape)


def test_gray_images_have_a_network_of_their_own(tmp_path):
    write_drive(curved_drive(channels=1, cameras=("image_0",), num_frames=18), tmp_path)
    split = Frames("00", (0, 6), (6, 12), (12, 18))
    task = tiny_task(root=str(tmp_path), split=split)
    model = eqx.filter_eval_shape(lambda: task.build(KittiModel(), key=jax.random.key(0)))
    assert model.sensor.encoder.network.kernels[0].shape == (7, 7, 2, 16)
    data = task.data("test")
    assert data.context["frames"].shape[1:] == (5, *SIZE, 1)
    features = eqx.filter_eval_shape(
        lambda model: (
            model.sensor(
                jnp.asarray(3),
                None,
                {"frames": data.context["frames"][0], "mirrored": jnp.asarray(True)},
                key=jax.random.key(0),
            ).features
        ),
        model,
    )
    assert features.shape == (128,)


def test_frames_to_look_at_are_those_of_the_readings_in_colour_and_mirrored():
    # Rejects the image before the first step, and a flip of what is not mirrored.
    task = tiny_task(split=Fold("00"))
    data = task.data("test")
    for n in range(len(data.initial)):
        one = jax.tree.map(lambda leaf, n=n: leaf[n], data)
        shown = task.frames(one)
        images = one.context["frames"][1:]
        expected = images[:, :, ::-1] if one.context["mirrored"] else images
        np.testing.assert_array_equal(shown, expected)
    assert task.drawing.view is None
    assert task.details(data).visible is None


def test_streets_are_generated_along_paths(monkeypatch, tmp_path):
    # The generator has tests of its own; here it is what it is told that counts.
    told = []

    def generate(name, poses, times, *, image_size, cameras, seed, progress):
        assert progress is None
        told.append((name, len(poses), image_size, cameras, seed))
        drive = curved_drive(num_frames=len(poses), cameras=cameras)
        return dataclasses.replace(drive, name=name, poses=poses, times=times)

    def path(seed, num_frames, *, highway=False):
        told.append((seed, num_frames, highway))
        drive = curved_drive(num_frames=num_frames)
        return drive.poses, drive.times

    monkeypatch.setattr(collection, "generate_drive", generate)
    monkeypatch.setattr(collection, "drive_path", path)
    made_up = KittiTask(image_size=SIZE, num_frames=10, num_steps=4, seed=2)
    assert len(made_up.drive_names()) == 11
    assert made_up.drive("01").num_frames == 10
    (seed, *path_told), drive_told = told
    assert path_told == [10, True]
    assert drive_told == ("01", 10, SIZE, ("image_2", "image_3"), seed)
    # Rejects drives that share their light, and seeds that share their drives.
    assert made_up.drive("02").name == "02"
    assert told[-1][-1] != seed
    assert dataclasses.replace(made_up, seed=3).drive("01").name == "01"
    assert told[-1][-1] != seed
    follows = KittiTask(poses=folder(), image_size=SIZE, cameras=("image_2",), num_frames=9)
    assert follows.drive_names() == ["00", "01", "02"]
    drive = follows.drive("02")
    np.testing.assert_array_equal(drive.poses, curved_drive("02").poses[:9])
    np.testing.assert_array_equal(drive.times, curved_drive("02").times[:9])
    assert told[-1][:-1] == ("02", 9, SIZE, ("image_2",))


def test_perturbations_leave_the_pose_alone():
    perturbations = KittiTask().perturbations()
    assert perturbations.shape == (3, 5)
    assert not perturbations[:, :3].any()
    assert not perturbations[0].any()
    np.testing.assert_allclose(perturbations[1, 3:], [-5.09878697, 2.4157549])


def test_end_errors_are_those_of_the_last_step_for_each_metre():
    # Rejects the distance from start to end as the length, and a length without the first step.
    initial = np.asarray([[0.0, 0, 0, 9, 9], [1.0, 1, 0, 9, 9]])
    states = np.zeros((2, 3, 5))
    states[0, :, :2] = [[3, 4], [3, 0], [0, 0]]
    states[1, :, :2] = 1.0
    differences = np.full((2, 2, 3, 5), 50.0)
    differences[0, :, -1] = [3, 4, -6, 99, 99]
    differences[1, :, -1] = [0, -1, 2, 99, 99]
    translation, rotation = end_errors(initial, states, differences)
    np.testing.assert_allclose(translation[:, 0], [5 / 12, 1 / 12])
    np.testing.assert_allclose(rotation[:, 0], [6 / 12, 2 / 12])
    assert np.isnan(translation[:, 1]).all()  # it stands still
    scores = tiny_task().scores(tiny_task().data("test"), np.ones((2, 3, 12, 4, 5)))
    assert {name: score.shape for name, score in scores.items()} == {
        "translation_error": (2, 3, 12),
        "rotation_error": (2, 3, 12),
    }


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_steps": 0}, "`num_steps` must be a whole number, at least 1: got 0"),
        ({"image_size": (0, 5)}, "`image_size` must be a whole number"),
        ({"poses": "p"}, "poses is for generated streets, but the images come from root"),
        ({"num_frames": 5}, "num_frames is for generated streets"),
    ],
)
def test_settings_that_cannot_be_are_named(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        tiny_task(**changes)


STAGE = StageSettings(num_epochs=1, length=2, frames_per_batch=12, warmup_steps=2)


def experiment(**changes):
    return Experiment(task=tiny_task(), stages=(STAGE,), **changes)


def test_the_recurrent_network_begins_with_the_direction_and_the_velocities(key):
    # Rejects a network that is told where the drive begins.
    task = tiny_task()
    one = jax.tree.map(lambda leaf: leaf[0], task.data("validation"))
    settings = Lstm(hidden_size=256, residual=True)
    built = eqx.filter_eval_shape(
        lambda: settings.build(task, task.build(KittiModel(), key=key), one, key=key)
    )
    assert built.cells[0].input_size == 128 + 1 + 4 + 5
    small = RecurrentFilter(task.state_features, 1, hidden_size=2, decoder_sizes=(), key=key)
    quiet = filtrax.constant_noise(jnp.ones(5))
    sensor = filtrax.DirectSensor(filtrax.constant_noise(jnp.ones(2)))
    spaces = {"state_space": task.state_space, "observation_space": task.observation_space}
    model = filtrax.StateSpaceModel(motion, quiet, observe, sensor, **spaces)
    belief = small.init(model, one.prior, key=key)
    _, _, heading, speed, rate = np.asarray(one.initial)
    angle = np.radians(heading)
    expected = [speed / 10, rate / 10, np.cos(angle), np.sin(angle)]
    np.testing.assert_allclose(belief.start[:4], expected)
    np.testing.assert_allclose(belief.start[4:], [0.01, 0.01, 0.01, 0.25, 0.25])


@pytest.mark.long
def test_images_go_once_there_are_features_of_them(monkeypatch):
    # Rejects a context that something other than the encoder reads, or that stays in memory.
    noise = dataclasses.replace(STAGE, train=("model.sensor.noise", "model.process_noise"))
    settings = dataclasses.replace(experiment(), stages=(noise,))
    data, validation = (settings.task.data(split) for split in ("train", "validation"))
    both = building.build_ensemble(settings, data)
    stage, perturbations = building.build_stages([settings], 0), settings.task.perturbations()
    training = Training(stage, *both, data, validation, perturbations, [0])
    assert not training.course.data.context
    assert not training.validation[0].context
    ensemble, start = training.begin()
    _, after = training.epoch(ensemble)
    assert np.isfinite(after.loss).all()
    monkeypatch.setattr(trainer, "has_frozen_encoder", lambda *_: False)
    images = Training(stage, *both, data, validation, perturbations, [0])
    assert set(images.course.data.context) == {"frames", "mirrored"}
    np.testing.assert_allclose(
        images.begin()[1].validation["loss"], start.validation["loss"], rtol=1e-5
    )


@pytest.mark.long
@pytest.mark.parametrize("filt", [Ekf(), Lstm(hidden_size=8, residual=True)], ids=lambda f: f.kind)
def test_a_filter_trains_and_is_evaluated_again_with_the_same_result(filt, tmp_path):
    # Rejects dropout in a test, which would give other numbers each time.
    trained = run.train(experiment(filter=filt), tmp_path / "run")
    metrics = trained["mean"]
    assert {"distance", "nll", "translation_error", "rotation_error"} <= metrics.keys()
    assert all(math.isfinite(value) for value in metrics.values())
    assert (trained["num_sequences"], trained["perturbations"]) == (12, 3)
    again = run.evaluate(tmp_path / "run")
    np.testing.assert_allclose([*again["mean"].values()], [*metrics.values()], rtol=1e-6)
    with np.load(tmp_path / "run" / "evaluation.npz") as drawn:
        assert drawn["frames"].shape == (6, 4, *SIZE, 3)
        assert drawn["translation_error"].shape == (12,)
        np.testing.assert_allclose(drawn["translation_error"].mean(), metrics["translation_error"])
        np.testing.assert_array_equal(drawn["measured_components"], [3, 4])
        assert "view_matrix" not in drawn
    assert config.read(Experiment, tmp_path / "run" / "config.toml") == experiment(filter=filt)
