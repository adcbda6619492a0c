"""The data of the disc task: statistics, splits, determinism, and what is known of them."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.disc import DiscTask

CORRELATED = [[9, -3.6, 1.2, 5.4], [-3.6, 9, -0.6, 0], [1.2, -0.6, 4, 0], [5.4, 0, 0, 4]]
ALONE = DiscTask(num_distractors=0, num_train=600, num_validation=3, num_test=2)
CROWD = DiscTask(num_distractors=4, num_steps=3, num_train=130, num_validation=5, num_test=4)


def steps(data):
    """Old states and process noise of all steps, by the equations of motion in NumPy."""
    states = np.concatenate([data.initial[:, None], data.states], 1)
    p, v = np.split(states[:, :-1], 2, axis=-1)
    moved = np.concatenate([p + v, v - 0.05 * p - 0.0075 * v**2 * np.sign(v)], -1)
    return states[:, :-1].reshape(-1, 4), (states[:, 1:] - moved).reshape(-1, 4)


def check_noise(noise, covariance):
    """Mean and covariance within five standard errors."""
    covariance, count = np.asarray(covariance, float), len(noise)
    variances = np.diagonal(covariance)
    assert (np.abs(noise.mean(0)) < 5 * np.sqrt(variances / count)).all()
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / count)
    assert (np.abs(noise.T @ noise / count - covariance) < 5 * error).all()


@pytest.fixture(scope="module")
def constant():
    return ALONE.data("train")


@pytest.fixture(scope="module")
def crowd():
    return CROWD.data("train")


def test_constant_noise(constant):
    # Rejects another scale, and noise that is the same in every step or in both axes.
    check_noise(steps(constant)[1], np.diag([9.0, 9.0, 4.0, 4.0]))
    noise = steps(constant)[1].reshape(600, 50, 4) / np.asarray([3, 3, 2, 2])
    repeated = np.einsum("nti,ntj->ij", noise[:, 1:], noise[:, :-1]) / (600 * 49)
    assert np.abs(repeated).max() < 5 / np.sqrt(600 * 49)


def test_any_level_of_noise():
    # Rejects levels that are compiled in.
    task = dataclasses.replace(ALONE, position_std=9.0, velocity_std=0.5, num_train=100)
    check_noise(steps(task.data("train"))[1], np.diag([81.0, 81.0, 0.25, 0.25]))


def test_heteroscedastic_noise_depends_on_the_old_position():
    # Rejects zones by the new position: then no large noise would start in an outer zone.
    task = dataclasses.replace(ALONE, noise="heteroscedastic", position_std=0.1)
    data = task.data("train")
    old, noise = steps(data)
    zone = np.digitize(np.abs(old[:, :2]).max(1), [20, 40], right=True)
    for place, std in enumerate((3.0, 1.0, 0.1)):
        check_noise(noise[zone == place], np.diag([0.01, 0.01, std**2, std**2]))
    few = jax.tree.map(lambda leaf: leaf[:8], data)
    true = np.asarray(task.details(few).process_covariance)[..., 2, 2].ravel()
    np.testing.assert_allclose(true, np.asarray([9.0, 1.0, 0.01])[zone[:400]], rtol=1e-9)


def test_correlated_noise():
    # Rejects independent components, and a factor that is transposed.
    task = dataclasses.replace(ALONE, noise="correlated")
    check_noise(steps(task.data("train"))[1], CORRELATED)


def test_states_spread_as_in_the_paper(constant):
    # Rejects another start, another spring or drag.
    states = np.asarray(constant.states)
    outside = (np.abs(states[..., :2]) > 60).any(-1).mean()
    assert 0.10 < outside < 0.13
    np.testing.assert_allclose(states.std((0, 1)), [33.3, 33.3, 7.5, 7.5], rtol=0.05)
    start = np.asarray(constant.initial)
    assert np.abs(start[:, :2]).max() < 60
    np.testing.assert_allclose(start.std(0), [34.6, 34.6, 3.0, 3.0], rtol=0.1)


def test_what_a_trajectory_holds(crowd):
    # Rejects readings of the old state, a target that looks wrong, and distractors that are red.
    assert crowd.inputs is None
    assert crowd.readings.dtype == jnp.int16
    assert crowd.readings.shape == (130, 3, 5, 2)
    np.testing.assert_array_equal(
        crowd.readings[:, :, 0], np.trunc(np.asarray(crowd.states[..., :2]) + 60)
    )
    np.testing.assert_array_equal(crowd.initial_covariance, np.tile(25 * np.eye(4), (130, 1, 1)))
    radii, colors = crowd.context["radii"], crowd.context["colors"]
    assert set(radii[:, 0].tolist()) == {7}
    assert set(colors[:, 0].tolist()) == {4}
    counts = np.bincount(np.asarray(radii[:, 1:]).ravel(), minlength=10)
    assert (counts[3:] > 40).all()
    assert counts.sum() == counts[3:].sum() == 520
    counts = np.bincount(np.asarray(colors[:, 1:]).ravel(), minlength=8)
    assert (counts[[1, 2, 3, 5, 6, 7]] > 50).all()
    assert counts[[0, 4]].sum() == 0


def test_distractors_move_like_the_target_on_their_own(crowd):
    # Rejects distractors that stand still, that move together, or with other noise.
    centres = np.asarray(crowd.readings, float)
    change = centres[:, 2] - 2 * centres[:, 1] + centres[:, 0]  # by noise, spring and drag
    spread = change.std(0)
    assert (np.abs(spread[1:] / spread[0] - 1) < 0.35).all()
    together = np.corrcoef(change[..., 0].T) - np.eye(5)
    assert np.abs(together).max() < 5 / np.sqrt(130)


def test_splits_have_their_sizes_and_differ():
    # Rejects splits that share sequences.
    starts = {}
    for split, size in (("train", 130), ("validation", 5), ("test", 4)):
        data = CROWD.data(split)
        assert {leaf.shape[0] for leaf in jax.tree.leaves(data)} == {size}
        assert CROWD.num_sequences(split) == size
        starts[split] = {tuple(row) for row in np.asarray(data.initial).tolist()}
        assert len(starts[split]) == size
    assert not starts["train"] & starts["validation"]
    assert not starts["validation"] & starts["test"]
    assert not starts["train"] & starts["test"]


def equal(first, second):
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), first, second)))


def test_data_follow_from_the_seed(crowd):
    # Rejects a seed that is not used, and sequences that depend on how many there are.
    first = jax.tree.map(lambda leaf: leaf[:128], crowd)
    assert equal(crowd, CROWD.data("train"))
    assert equal(first, dataclasses.replace(CROWD, num_train=128).data("train"))
    other = dataclasses.replace(CROWD, seed=1, num_train=128).data("train")
    assert not (other.initial == first.initial).any()
    more = dataclasses.replace(CROWD, num_train=1)
    assert equal(more.data("test"), CROWD.data("test"))


def test_scenes_begin_with_the_start(crowd):
    # Rejects first sequences that are not those of the data, and a start that is left out.
    scenes = CROWD.scenes("train", 3)
    np.testing.assert_array_equal(scenes.states[:, 0], crowd.initial[:3])
    np.testing.assert_array_equal(scenes.centres[:, 1:], crowd.readings[:3])
    np.testing.assert_array_equal(
        scenes.centres[:, 0, 0], np.trunc(np.asarray(crowd.initial[:3, :2]) + 60)
    )


def test_details(crowd):
    # Rejects covariances of the new state, and counts of other images than the readings'.
    data = jax.tree.map(lambda leaf: leaf[:10], crowd)
    details = CROWD.details(data)
    assert details.visible.shape == (10, 3)
    frames = CROWD.frames(jax.tree.map(lambda leaf: leaf[9], data))
    np.testing.assert_array_equal(details.visible[9], (frames == (255, 0, 0)).all(-1).sum((1, 2)))
    np.testing.assert_allclose(
        details.process_covariance, np.broadcast_to(np.diag([9, 9, 4, 4]), (10, 3, 4, 4))
    )
    with pytest.raises(ValueError, match="true states"):
        CROWD.details(dataclasses.replace(data, states=None))


@pytest.mark.parametrize(("size", "shift"), [(120, 0.0), (60, 0.25)])
def test_the_view_is_where_the_disc_is(constant, size, shift):
    # Rejects an offset of half a pixel, rows for columns, and the wrong scale. In half the size
    # pixel k shows the canvas in 2k + 1, which is a quarter of a pixel behind its middle.
    task = dataclasses.replace(ALONE, image_size=size)
    one = jax.tree.map(lambda leaf: leaf[3], constant)
    frames, view = task.frames(one), task.view()
    assert frames.shape == (50, size, size, 3)
    errors = []
    for frame, state in zip(frames, np.asarray(one.states), strict=True):
        if np.abs(state[:2]).max() < 50:  # the disc is wholly inside
            rows, columns = np.nonzero(frame[..., 0])
            errors.append(view.matrix @ state + view.offset - (columns.mean(), rows.mean()))
    assert len(errors) > 20
    assert np.abs(np.mean(errors, 0) - shift).max() < 0.15
    assert np.abs(np.asarray(errors) - shift).max() < 0.55


PAPER = [
    [0, 0, 0, 0],
    [-5.587, 3.782, -5.895, -3.441],
    [-10.428, 1.034, 9.516, -1.171],
    [3.053, 4.262, -6.058, 4.927],
    [2.631, 12.652, 7.648, 5.688],
]


def test_perturbations_are_those_of_the_paper():
    # Rejects a list that does not follow the prior, and one list scaled for all priors.
    np.testing.assert_array_equal(ALONE.perturbations(), PAPER)
    for std in (1.0, 2.5):
        task = dataclasses.replace(ALONE, initial_std=std)
        np.testing.assert_allclose(task.perturbations(), np.asarray(PAPER) * std / 5)
    ten = dataclasses.replace(ALONE, initial_std=10.0).perturbations()
    np.testing.assert_array_equal(ten[0], np.zeros(4))
    np.testing.assert_array_equal(ten[1], [3.0377, 18.574, 7.65, -26.14])
    np.testing.assert_array_equal(ten[-1], [-12.76, 26.25, -1.98, -1.87])
    assert ten.shape == (5, 4)


def test_defaults_are_those_of_the_paper():
    task = DiscTask()
    sizes = [task.num_sequences(split) for split in ("train", "validation", "test")]
    assert sizes == [2400, 300, 303]
    assert (task.num_steps, task.num_distractors, task.image_size) == (50, 30, 120)
    assert task.state_space.names == ("x", "y", "vx", "vy")
    assert task.state_features.scale == (60.0,) * 4
    assert task.observation_space.names == ("x", "y")
    assert task.observation_features.scale == (60.0,) * 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_distractors": -1}, "`num_distractors` must be a whole number, at least 0: got -1"),
        ({"num_steps": 0}, "`num_steps` must be a whole number, at least 1: got 0"),
        ({"num_train": 2.5}, "`num_train` must be a whole number, at least 1: got 2.5"),
        ({"num_test": True}, "`num_test` must be a whole number, at least 1: got True"),
        ({"seed": -1}, "`seed` must be a whole number"),
        ({"image_size": 121}, "`image_size` must be a whole number, between 16 and 120: got 121"),
        ({"image_size": 15}, "between 16 and 120"),
        ({"position_std": -3.0}, "`position_std` must be a standard deviation"),
        ({"velocity_std": float("nan")}, "`velocity_std` must be a standard deviation"),
        ({"velocity_std": "2"}, "`velocity_std` must be a standard deviation"),
        ({"initial_std": 0.0}, "`initial_std` must be positive"),
        ({"noise": "heteroskedastic"}, "Did you mean 'heteroscedastic'?"),
        ({"noise": "correlated", "position_std": 9.0}, "leave it at 3.0, got 9.0"),
        ({"noise": "correlated", "velocity_std": 1.0}, "leave it at 2.0, got 1.0"),
        ({"noise": "heteroscedastic", "velocity_std": 1.0}, "leave it at 2.0, got 1.0"),
    ],
)
def test_wrong_fields_are_named(fields, message):
    task = DiscTask()
    for name, value in fields.items():  # past the type checker that only tests have
        object.__setattr__(task, name, value)
    with pytest.raises(ValueError, match=re.escape(message)):
        task.__post_init__()


def test_wrong_splits_are_named():
    with pytest.raises(ValueError, match="Did you mean 'validation'"):
        ALONE.data("validate")
    with pytest.raises(ValueError, match="`num_sequences` must be a whole number, between 1 and 3"):
        ALONE.scenes("validation", 4)
