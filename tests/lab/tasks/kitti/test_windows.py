"""Windows: what they hold, where they come from, and which split has them."""

import jax
import numpy as np
import pytest

from filtrax.lab.tasks.kitti.windows import INITIAL_COVARIANCE, Cutting, Fold, Frames, trajectories
from tiny_kitti import curved_drive

DRIVES = {name: curved_drive(name, num_frames=14, size=(3, 5)) for name in ("00", "01", "02")}
T = 4


def cutting(**changes):
    settings = {"num_steps": T, "velocities": "forward", "per_variant": 3, "stride": 3, "most": 99}
    return Cutting(**(settings | {"seed": 0} | changes))


def cut(split, which="train", cuts=None, drives=DRIVES, mirrored=True):
    cuts = cutting() if cuts is None else cuts
    return split.windows(which, list(drives), drives.__getitem__, cuts, mirrored=mirrored)


def named(windows):
    return {(w.track.drive.name, w.camera, w.mirrored, w.start) for w in windows}


@pytest.mark.parametrize("velocities", ["forward", "aligned"])
def test_states_inputs_and_images_of_a_window_belong_together(velocities):
    # Rejects velocities, time steps or images that are one frame too early or too late.
    drive = DRIVES["00"]
    windows = [*cutting(velocities=velocities, stride=1).regular(drive, mirrored=False)]
    data = trajectories(windows, T)
    frames = data.context["frames"]
    assert frames.shape == (len(windows), T + 1, 3, 5, 3)
    # One of 14 frames has no velocity, and a window has five frames.
    first = int(velocities == "aligned")
    assert [w.start for w in windows] == [*range(first, first + 9)] * 2
    xy = np.stack([drive.poses[:, 2, 3], -drive.poses[:, 0, 3]], -1)
    for n, window in enumerate(windows):
        shown = frames[n, :, 0, 0, 0].astype(int)
        np.testing.assert_array_equal(shown, window.start + np.arange(T + 1))
        assert (frames[n, :, 0, 1, 0] == int(window.camera == "image_3")).all()
        states = np.concatenate([data.initial[n][None], data.states[n]])
        np.testing.assert_allclose(states[:, :2], xy[shown])
        np.testing.assert_allclose(data.inputs[n, :, 0], np.diff(drive.times[shown]))
        np.testing.assert_array_equal(data.readings[n], np.arange(T))
        # The motion between the two images of a reading is that of the state it is read at, or of
        # the state before it.
        speed = np.linalg.norm(np.diff(xy[shown], axis=0), axis=-1) / data.inputs[n, :, 0]
        seen = states[1:, 3] if velocities == "aligned" else states[:-1, 3]
        np.testing.assert_allclose(seen, speed)
    assert np.isfinite(np.asarray(data.states)).all()
    np.testing.assert_array_equal(data.initial_covariance[-1], INITIAL_COVARIANCE)


def test_mirrored_windows_have_mirrored_states_and_say_so():
    # Rejects images that are flipped twice, and a speed that changes its sign.
    windows = [*cutting(stride=100).regular(DRIVES["00"], mirrored=True)]
    plain, flipped = trajectories(windows[:1], T), trajectories(windows[1:2], T)
    assert [w.mirrored for w in windows] == [False, True] * 2
    assert (plain.context["mirrored"], flipped.context["mirrored"]) == ([False], [True])
    np.testing.assert_array_equal(flipped.context["frames"], plain.context["frames"])
    signs = np.asarray([1.0, -1.0, -1.0, 1.0, -1.0])
    np.testing.assert_allclose(flipped.states, np.asarray(plain.states) * signs)
    np.testing.assert_allclose(flipped.initial, np.asarray(plain.initial) * signs)
    np.testing.assert_array_equal(flipped.inputs, plain.inputs)


def test_a_fold_trains_on_all_other_drives():
    train, validation, test = (cut(Fold("01"), s) for s in ("train", "validation", "test"))
    assert {w.track.drive.name for w in train + validation} == {"00", "02"}
    assert {w.track.drive.name for w in test} == {"01"}
    # Two drives, two cameras, mirrored or not, three windows each; one of seven validates.
    assert (len(train), len(validation)) == (20, 4)
    assert not named(train) & named(validation)
    assert len(named(train) | named(validation)) == 24
    assert {(w.camera, w.mirrored) for w in test} == {
        (camera, flip) for camera in ("image_2", "image_3") for flip in (False, True)
    }
    assert [w.start for w in test[:3]] == [0, 3, 6]


def test_the_windows_of_a_drive_do_not_depend_on_the_fold_but_on_the_seed():
    def of_drive(fold, seed=0):
        windows = [
            w for s in ("train", "validation") for w in cut(Fold(fold), s, cutting(seed=seed))
        ]
        return {window for window in named(windows) if window[0] == "02"}

    assert of_drive("00") == of_drive("01")
    assert of_drive("00") != of_drive("00", seed=1)
    starts = {variant[1:3]: [] for variant in of_drive("00")}
    for _, camera, flip, start in of_drive("00"):
        starts[camera, flip].append(start)
    assert len({tuple(sorted(found)) for found in starts.values()}) > 1
    assert all(len(set(found)) == 3 for found in starts.values())


def test_few_windows_are_all_that_there_are_and_many_cover_the_drive():
    assert len([*cutting(per_variant=50).drawn(DRIVES["00"], mirrored=False)]) == 2 * 9
    few = [*cutting(stride=1, most=3).regular(DRIVES["00"], mirrored=False)]
    assert [w.start for w in few] == [0, 4, 8] * 2


def test_frames_of_one_drive_are_in_one_split():
    split = Frames("00", train=(0, 8), validation=(8, 14), test=(14, 22))
    drives = {"00": curved_drive(num_frames=22, size=(3, 5))}
    seen = {}
    for name in ("train", "validation", "test"):
        data = trajectories(cut(split, name, cutting(per_variant=99, stride=1), drives), T)
        seen[name] = {int(frame) for frame in data.context["frames"][:, :, 0, 0, 0].ravel()}
        assert np.isfinite(np.asarray(data.states)).all()
    # The last frame of each part has no velocity: the next frame is in another part.
    assert seen == {"train": {*range(7)}, "validation": {*range(8, 13)}, "test": {*range(14, 21)}}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Frames(train=(0, 10), validation=(9, 20)), "do not overlap: got .*9, 20"),
        (lambda: Frames(train=(10, 10)), "do not overlap"),
        (lambda: Frames(train=(-1, 10)), "do not overlap"),
        (lambda: cut(Fold("10")), r"`split.test` must name a drive: got \['10'\]"),
        (lambda: cut(Frames("3")), r"`split.sequence` must name a drive: got \['3'\]"),
        (
            lambda: cut(Fold("00"), drives={"00": DRIVES["00"]}),
            r'besides drive 00, .* split.kind = "frames"',
        ),
        (
            lambda: cut(Fold("00"), cuts=cutting(num_steps=13)),
            r"at least 15 frames for windows of 13 steps .* drive 01 has 14 here",
        ),
        (
            lambda: trajectories(
                cut(Fold("00"), drives=DRIVES | {"02": curved_drive("02", size=(3, 6))}), T
            ),
            r"must have the same height, width and channels, got .*\(3, 6, 3\)",
        ),
    ],
)
def test_splits_that_cannot_be_are_named(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_images_are_kept_on_the_host_until_they_are_needed():
    data = trajectories(cut(Fold("01"), "validation"), T)
    assert isinstance(data.context["frames"], np.ndarray)
    assert isinstance(data.states, jax.Array)
