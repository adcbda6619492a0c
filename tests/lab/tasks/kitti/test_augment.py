"""Changed training windows: images and labels change alike, and nothing else does."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.filters import ExtendedKalmanFilter
from filtrax.lab.tasks.kitti import Augmentation, KittiModel
from filtrax.lab.tasks.kitti.augment import Augment, turned, turned_states
from filtrax.lab.tasks.kitti.camera import Intrinsics
from filtrax.lab.tasks.kitti.encoders import two_frames
from filtrax.lab.tasks.kitti.model import build_model
from filtrax.lab.tasks.kitti.motion import mirrored
from filtrax.lab.tasks.kitti.process import motion
from filtrax.training.evaluation import ObjectiveScore
from filtrax.training.objectives import sensor_nll
from filtrax.training.stages import Stage
from filtrax.training.steps import cut_batch
from filtrax.trajectory import Trajectory
from tiny_kitti import tiny_task

SIZE = (20, 60)
STRONG = Augmentation(
    gain=0.2,
    flicker=0.1,
    bias=5.0,
    noise=2.0,
    sway=3.0,
    sway_period=1.5,
    yaw=1.0,
    pitch=1.0,
    nod=0.5,
)


def window(num_steps=6, *, mirrored=False, rate=0.0, seed=0):
    """A car in a bend, its states exactly as the equations of motion have them."""
    draw = np.random.default_rng(seed)
    states = [np.asarray([3.0, -2.0, 175.0, 8.0, rate])]
    for _ in range(num_steps):
        angle = np.radians(states[-1][2])
        moved = [0.8 * np.cos(angle), 0.8 * np.sin(angle), 0.1 * rate, 0.0, 0.0]
        states.append(states[-1] + moved)
    states = np.stack(states)
    states[:, 2] = (states[:, 2] + 180) % 360 - 180
    frames = draw.integers(0, 256, (num_steps + 3, *SIZE, 1), np.uint8)
    return Trajectory(
        jnp.asarray(states[0]),
        jnp.eye(5),
        jnp.arange(2, num_steps + 2),  # the first frames of the window were cut away
        inputs=jnp.full((num_steps, 1), 0.1),
        states=jnp.asarray(states[1:]),
        context={"frames": jnp.asarray(frames), "mirrored": jnp.asarray(mirrored)},
    )


@eqx.filter_jit
def augmented(settings, velocities, trajectory, key):
    return Augment(settings, velocities)(trajectory, key)


@eqx.filter_jit
def frames_of(number, context):
    return two_frames(number, context, jnp.zeros(0).dtype)


def all_states(trajectory):
    """Those of all frames, the first one included."""
    assert trajectory.states is not None
    return np.concatenate([np.asarray(trajectory.initial)[None], np.asarray(trajectory.states)])


warped = jax.jit(turned)


LENS = Intrinsics.resized(SIZE)
ACROSS = (np.arange(SIZE[1]) - LENS.centre_x) / LENS.focal_x
FALLING = (np.arange(SIZE[0])[:, None] - LENS.centre_y) / LENS.focal_y


def far_away(azimuth):
    """What a camera sees that looks in a direction, in radians to the left, at far things.

    Brightness is a smooth function of the direction in the world alone.
    """
    angle = azimuth - np.arctan(ACROSS)
    rise = np.broadcast_to(FALLING * np.cos(np.arctan(ACROSS)), SIZE)
    image = 120 + 60 * np.sin(9 * angle)[None] + 40 * np.cos(7 * rise)
    return image[..., None]


def test_a_turned_image_is_what_a_turned_camera_sees():
    # Rejects the wrong direction, an equal shift of all columns, and other focal lengths.
    inside = (slice(3, -3), slice(8, -8))
    image = warped(jnp.asarray(far_away(0.3)), jnp.asarray(0.08), jnp.asarray(0.0))
    error = np.abs(np.asarray(image) - far_away(0.38))[inside].mean()
    assert error < 0.5
    assert np.abs(far_away(0.3) - far_away(0.38))[inside].mean() > 10
    shifted = np.roll(far_away(0.3), round(0.08 * LENS.focal_x), 1)
    assert np.abs(shifted - far_away(0.38))[inside].mean() > 3 * error
    same = warped(jnp.asarray(far_away(0.3)), jnp.asarray(0.0), jnp.asarray(0.0))
    np.testing.assert_allclose(same, far_away(0.3), atol=1e-9)


def test_a_turned_drive_is_the_same_drive_seen_from_another_side(key):
    # Rejects a turn about the origin, headings or positions that stay, and speeds or images that
    # change.
    drive = window(rate=20.0)
    found = augmented(Augmentation(turn=180.0), "forward", drive, key)
    before, after = all_states(drive), all_states(found)
    angle = (after[:, 2] - before[:, 2] + 180) % 360 - 180
    np.testing.assert_allclose(angle, angle[0], atol=1e-9)
    assert abs(angle[0]) > 1
    cosine, sine = np.cos(np.radians(angle[0])), np.sin(np.radians(angle[0]))
    way = (before[:, :2] - before[0, :2]) @ np.asarray([[cosine, sine], [-sine, cosine]])
    np.testing.assert_allclose(after[:, :2] - before[0, :2], way, atol=1e-9)
    np.testing.assert_array_equal(after[:, 3:], before[:, 3:])
    assert found.context.keys() == drive.context.keys()
    for name, value in drive.context.items():
        np.testing.assert_array_equal(found.context[name], value)
    np.testing.assert_array_equal(found.readings, drive.readings)


def test_turns_are_drawn_evenly_up_to_the_largest_one(key):
    turn = lambda key: augmented(Augmentation(turn=40.0), "forward", window(), key).initial[2]  # noqa: E731
    angles = (np.asarray(jax.vmap(turn)(jax.random.split(key, 500))) - 175.0 + 180) % 360 - 180
    assert np.abs(angles).max() < 40
    counts, _ = np.histogram(angles, 4, (-40, 40))
    assert counts.min() > 90


def test_a_turn_alone_keeps_readings_and_everything_else_does_not():
    task = tiny_task(augmentation=Augmentation(turn=180.0))
    assert task.augment.keeps_readings
    assert not tiny_task(augmentation=Augmentation(turn=180.0, nod=0.1)).augment.keeps_readings


def test_a_camera_that_looks_up_sees_things_further_down():
    image = np.zeros((*SIZE, 1))
    image[10] = 1.0
    pixel = 1 / LENS.focal_y
    found = np.asarray(warped(jnp.asarray(image), jnp.asarray(0.0), jnp.asarray(2 * pixel)))
    np.testing.assert_allclose(found[12], 1.0)
    np.testing.assert_allclose(found[10], 0.0, atol=1e-9)


@pytest.mark.parametrize("velocities", ["forward", "aligned"])
def test_changed_states_still_move_by_the_equations_of_motion(velocities, key):
    # Rejects rates of another step, positions that are not turned, and a heading beyond its range.
    only_sway = Augmentation(sway=4.0, sway_period=1.0, yaw=2.0)
    drive = window()
    found = augmented(only_sway, velocities, drive, key)
    before, after = all_states(drive), all_states(found)
    turned_by = (after[:, 2] - before[:, 2] + 180) % 360 - 180
    assert np.ptp(turned_by) > 0.5
    assert (np.abs(after[:, 2]) <= 180).all()
    rates = after[:, 4] - before[:, 4]
    per_step = np.diff(turned_by) / 0.1
    np.testing.assert_allclose(rates[:-1] if velocities == "forward" else rates[1:], per_step)
    np.testing.assert_allclose(after[:, 3], before[:, 3])
    if velocities == "forward":
        for one, other in itertools.pairwise(after):
            moved = motion(jnp.asarray(one), jnp.asarray([0.1]))
            np.testing.assert_allclose(moved[:2], other[:2], atol=1e-9)
    # The images are turned by as much, in the direction in which the camera is not mirrored.
    distortion = found.context["distortion"]
    np.testing.assert_allclose(np.degrees(distortion.yaw), turned_by, atol=1e-9)
    assert int(distortion.first) == 2


def test_mirrored_images_are_turned_the_other_way(key):
    only_sway = Augmentation(sway=4.0, sway_period=1.0, yaw=2.0)
    plain, flipped = (
        augmented(only_sway, "aligned", window(mirrored=m), key).context["distortion"]
        for m in (False, True)
    )
    np.testing.assert_allclose(plain.yaw, -flipped.yaw)
    assert np.abs(plain.yaw).max() > 0.01


def test_frames_are_distorted_before_they_are_mirrored_and_alike_whenever_they_are_read(key):
    # A frame is the present image of one reading and the image before of the next one.
    for flip in (False, True):
        context = augmented(STRONG, "aligned", window(mirrored=flip), key).context
        reads = [frames_of(jnp.asarray(i), context) for i in (3, 4)]
        np.testing.assert_array_equal(reads[0][1], reads[1][0])
        plain = frames_of(jnp.asarray(3), context | {"distortion": None})
        assert np.abs(reads[0][0] - plain[0]).mean() > 5
        assert (np.asarray(reads[0][0]) >= 0).all()
        distorted = context["distortion"](
            context["frames"][3].astype(plain[0].dtype), jnp.asarray(3)
        )
        expected = distorted[:, ::-1] if flip else distorted
        np.testing.assert_allclose(reads[0][0], expected)


def test_a_mirrored_sub_sequence_is_seen_by_a_mirrored_world(key):
    # Rejects a mirror about the middle of the image, and labels that stay as they were.
    always = Augmentation(mirror=1.0)
    drive = window(rate=12.0)
    image = np.stack([far_away(0.3)] * 9).round().astype(np.uint8)
    drive = dataclasses.replace(drive, context=drive.context | {"frames": jnp.asarray(image)})
    found = augmented(always, "aligned", drive, key)
    np.testing.assert_allclose(all_states(found), mirrored(all_states(drive)), atol=1e-9)
    assert found.context["mirrored"]
    seen = np.asarray(frames_of(jnp.asarray(4), found.context)[0])
    # The scene is mirrored about the direction in which the camera looks.
    expected = 120 + 60 * np.sin(9 * (0.3 + np.arctan(ACROSS)))
    rows = 40 * np.cos(7 * np.broadcast_to(FALLING * np.cos(np.arctan(ACROSS)), SIZE))
    inside = (slice(None), slice(4, -4))
    assert np.abs(seen[..., 0] - expected[None] - rows)[inside].mean() < 1.5
    flipped = image[4, :, ::-1, 0]
    assert np.abs(flipped - expected[None] - rows)[inside].mean() > 5
    twice = augmented(always, "aligned", found_again(drive), key)
    assert not twice.context["mirrored"]


def found_again(drive):
    """The same drive with windows that are mirrored already."""
    return dataclasses.replace(drive, context=drive.context | {"mirrored": jnp.asarray(True)})


def test_no_strength_changes_nothing(key):
    drive = window(rate=12.0)
    found = augmented(Augmentation(), "aligned", drive, key)
    np.testing.assert_allclose(all_states(found), all_states(drive), atol=1e-9)
    for image, frame in zip(
        frames_of(jnp.asarray(4), found.context),
        drive.context["frames"][4:6],
        strict=True,
    ):
        np.testing.assert_allclose(image, frame, atol=1e-9)
    assert tiny_task().augment is None
    assert tiny_task(augmentation=Augmentation(sway_period=9.0)).augment is None
    assert tiny_task(augmentation=STRONG).augment == Augment(STRONG, "forward")


def test_a_state_that_is_turned_keeps_its_distances():
    states = np.asarray(window(rate=20.0).states)
    turn = jax.jit(turned_states)
    found = np.asarray(turn(jnp.asarray(states), jnp.linspace(0, 5, 6), jnp.ones(6)))
    lengths = [np.linalg.norm(np.diff(part[:, :2], axis=0), axis=1) for part in (states, found)]
    np.testing.assert_allclose(*lengths)


def test_training_alone_is_augmented_and_all_members_alike(key):
    # Rejects an augmentation of whole windows, one per member, and one of the validation.
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), window(), window(seed=1))
    stage = Stage(
        sensor_nll,
        ObjectiveScore(sensor_nll),
        length=2,
        batch_size=3,
        augment=Augment(STRONG, "aligned"),
    )
    chosen, cut = jnp.asarray([0, 1, 1]), eqx.filter_jit(cut_batch)
    plain = cut(data, None, chosen, dataclasses.replace(stage, augment=None), key=key)
    batch = cut(data, None, chosen, stage, key=key)
    np.testing.assert_array_equal(plain.readings, batch.readings)
    np.testing.assert_array_equal(batch.context["distortion"].first, batch.readings[:, 0])
    assert batch.context["distortion"].gain.shape == (3, 3)
    assert len({float(gain) for gain in batch.context["distortion"].gain[:, 0]}) == 3
    assert "distortion" not in plain.context
    assert (np.asarray(batch.states) != np.asarray(plain.states)).any()
    task = tiny_task(augmentation=STRONG)
    for split in ("train", "validation", "test"):
        given, usual = task.data(split), tiny_task().data(split)
        assert given.context.keys() == {"frames", "mirrored"}
        np.testing.assert_array_equal(given.states, usual.states)


@pytest.mark.long
def test_gradients_of_a_sensor_are_finite_through_changed_images(key):
    task = tiny_task(image_size=SIZE)
    model = build_model(task, KittiModel(sensor="matching", dropout=0.0), 1, key=key)
    drive = augmented(STRONG, "aligned", window(2), key)
    filt, start = ExtendedKalmanFilter(), jnp.zeros(())

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(sensor):
        changed = dataclasses.replace(model, sensor=sensor)
        return sensor_nll(filt, changed, drive, start, key)

    found = gradient(model.sensor)
    leaves = jax.tree.leaves(found)
    assert all(np.isfinite(leaf).all() for leaf in leaves)
    assert np.abs(found.encoder.network.dense.layers[0].weight).max() > 0
    assert np.abs(found.encoder.network.log_sharpness).max() > 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mirror": 1.5}, "augmentation.mirror must be at most 1, got 1.5"),
        ({"gain": -0.1}, "augmentation.gain must be at least 0, got -0.1"),
        ({"sway_period": 0.0}, "augmentation.sway_period must be positive, got 0.0"),
        ({"noise": float("nan")}, "augmentation.noise must be at least 0, got nan"),
    ],
)
def test_settings_that_cannot_be_are_named(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        Augmentation(**changes)
