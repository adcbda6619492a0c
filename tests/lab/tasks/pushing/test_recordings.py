import dataclasses
import gzip
import importlib.util
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing.contact import Friction
from filtrax.lab.tasks.pushing.recordings.endpoints import (
    COLUMNS,
    find_endpoints,
    read_endpoints,
    wrapped_difference,
)
from filtrax.lab.tasks.pushing.recordings.outlines import read_outlines, read_shapes
from filtrax.lab.tasks.pushing.recordings.sequences import (
    Chain,
    chained,
    free_path,
    labelled,
    recorded,
)
from filtrax.lab.tasks.pushing.recordings.trials import TABLES, Frames, read_trial, resampled
from filtrax.lab.tasks.pushing.shapes import TIP_RADIUS, shape

ROW = "abs,hex,10,0.3,-0.05,3.1,0.31,-0.05,-3.1,0.23,-0.05,0.28,-0.05"


HEADER = ",".join(COLUMNS)


def write_table(path, *rows, header=HEADER):
    text = "\n".join([header, *rows]) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["pushes.csv", "pushes.csv.gz"])
def test_a_table_is_read_in_mm_and_degrees_whatever_the_order_of_columns(tmp_path, name):
    order = [*reversed(COLUMNS)]
    row = dict(zip(COLUMNS, ROW.split(","), strict=True))
    path = write_table(
        tmp_path / name, ",".join(row[column] for column in order), header=",".join(order)
    )
    pushes = read_endpoints(path)
    assert len(pushes) == 1
    assert (pushes.surfaces[0], pushes.shapes[0], pushes.speeds[0]) == ("abs", "hex", 10)
    assert pushes.starts[0] == pytest.approx([300, -50, np.degrees(3.1)])
    assert pushes.tip_ends[0] == pytest.approx([280, -50])
    # Orientations jump at ±180 degrees, motions do not.
    assert pushes.motions[0] == pytest.approx([10, 0, np.degrees(2 * np.pi - 6.2)])


BROKEN = {
    "missing columns": (("hex,1",), "shape,obj_x0", r"surface, tip_speed_mm_s, .* are missing"),
    "no pushes": ((), HEADER, "a push at least"),
    "a short line": ((ROW, "abs,hex,10"), HEADER, "Line 3 .* 13 entries .* got 3"),
    "no number": ((ROW, ROW.replace("0.23", "x")), HEADER, "tip_x0 .* line 3 has 'x'"),
    "infinite": ((ROW.replace("0.23", "inf"),), HEADER, "finite .* line 2 has 'inf'"),
    "unknown shape": ((ROW.replace("hex", "hexx"),), HEADER, "Did you mean 'hex'"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_table_is_refused_in_one_sentence(tmp_path, what):
    rows, header, message = BROKEN[what]
    with pytest.raises(ValueError, match=message):
        read_endpoints(write_table(tmp_path / "pushes.csv", *rows, header=header))


def test_a_damaged_archive_is_refused(tmp_path):
    path = write_table(tmp_path / "pushes.csv.gz", ROW)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=r"damaged .*: copy it again"):
        read_endpoints(path)
    path.write_text("plain text")
    with pytest.raises(ValueError, match="damaged"):
        read_endpoints(path)


def test_the_one_table_of_a_folder_is_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"one table of pushes .* got none"):
        find_endpoints(tmp_path)
    path = write_table(tmp_path / "push_endpoints_abs.csv", ROW)
    assert find_endpoints(tmp_path) == find_endpoints(path) == path
    write_table(tmp_path / "push_endpoints_pu.csv", ROW)
    with pytest.raises(FileNotFoundError, match=r"push_endpoints_pu\.csv: name the file"):
        find_endpoints(tmp_path)


def write_shapes(tmp_path, **shapes):
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps({"shapes": shapes}))
    return path


def test_outlines_are_read_counter_clockwise_in_mm(tmp_path):
    clockwise = [[0.0, 0.0], [0.0, 0.03], [0.06, 0.03], [0.06, 0.0]]
    path = write_shapes(
        tmp_path,
        box={"type": "polygon", "vertices": clockwise},
        ellip2={"type": "ellipse", "semi_axes": [0.03, 0.02]},
    )
    outlines = read_outlines(path)
    x, y = outlines["box"].T
    assert (x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2 == pytest.approx(1800)
    shapes = read_shapes(path)
    assert np.asarray(shapes["box"].centroid) == pytest.approx([30, 15])
    assert float(shapes["ellip2"].period) == 180
    assert np.abs(outlines["ellip2"]).max(0) == pytest.approx([30, 20])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"type": "star"}, "'polygon' or 'ellipse', got 'star'"),
        ({"type": "polygon", "vertices": [[0, 0], [1, 1]]}, "enclose an area, got 2 points"),
        ({"type": "polygon", "vertices": [[0, 0], [1, 1], [1]]}, "pairs of finite numbers"),
        ({"type": "ellipse"}, "`semi_axes` of shape thing .* two finite numbers"),
        ([1, 2], "an object with a `type`"),
    ],
)
def test_a_broken_shape_is_refused(tmp_path, entry, message):
    with pytest.raises(ValueError, match=message):
        read_outlines(write_shapes(tmp_path, thing=entry))


def trial_content(num_rows=251):
    """One second at 250 Hz: the tip moves 50 mm along x, the object 25 mm and over 180 degrees."""
    times = np.linspace(100.0, 101.0, num_rows)
    share = times - 100
    still = np.zeros(num_rows)
    turned = (np.pi - 0.1 + 0.2 * share + np.pi) % (2 * np.pi) - np.pi
    return {
        "tip_pose": np.stack([times, 0.3 + 0.05 * share, still, still], 1).tolist(),
        "object_pose": np.stack([times, 0.36 + 0.025 * share, still, turned], 1).tolist(),
        "ft_wrench": np.stack([times, still, still, still], 1).tolist(),
    }


NAME = "motion_surface=abs_shape=rect1_a=0_v=50_i=1.000_s=0.000_t=0.000"


def write_trial(tmp_path, content):
    path = tmp_path / f"{NAME}.json"
    path.write_text(json.dumps(content))
    return path


def test_a_trial_is_read_and_resampled(tmp_path):
    trial = read_trial(write_trial(tmp_path, trial_content()))
    assert trial.settings["surface"] == "abs"
    assert trial.settings["v"] == "50"
    frames = resampled(trial)
    assert frames.tips[:, 0] == pytest.approx(300 + 10 * np.arange(6))
    assert frames.poses[:, 0] == pytest.approx(360 + 5 * np.arange(6))
    assert np.diff(frames.poses[:, 2]) == pytest.approx(np.full(5, np.degrees(0.04)))
    assert len(resampled(trial, 10.0).tips) == 11
    with pytest.raises(ValueError, match=r"two frames at 0.5 Hz .* 1.000 s: take a higher rate"):
        resampled(trial, 0.5)
    with pytest.raises(ValueError, match="`rate` must be a positive number"):
        resampled(trial, 0.0)


@pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is not installed")
def test_hdf5_has_the_same_tables(tmp_path):
    import h5py

    content = trial_content()
    path = tmp_path / f"{NAME}.h5"
    with h5py.File(path, "w") as file:
        for name, rows in content.items():
            file[name] = rows
    expected, found = read_trial(write_trial(tmp_path, content)), read_trial(path)
    for field in ("tip", "object", "wrench"):
        assert getattr(found, field) == pytest.approx(getattr(expected, field))
    path.write_bytes(b"no such file")
    with pytest.raises(ValueError, match="must be an HDF5 file, but it is damaged"):
        read_trial(path)


def test_without_h5py_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ImportError, match=r"pip install 'filtrax\[mit\]'"):
        read_trial(tmp_path / "trial.h5")


def test_broken_trials_are_refused(tmp_path):
    content = trial_content(5)
    breaks = {
        "object_pose is missing": {name: content[name] for name in TABLES if name[0] != "o"},
        "two rows of 4 numbers": {**content, "tip_pose": content["tip_pose"][:1]},
        "must not decrease, but row 4": {
            **content,
            "tip_pose": [*content["tip_pose"][:4], content["tip_pose"][0]],
        },
        "finite numbers only": {**content, "ft_wrench": [[0, 0, 0, float("nan")]] * 3},
        "got an array of shape": {**content, "object_pose": [[1, 2], [1]]},
    }
    for message, broken in breaks.items():
        with pytest.raises(ValueError, match=message):
            read_trial(write_trial(tmp_path, broken))
    with pytest.raises(ValueError, match="a JSON object of tables, got list"):
        read_trial(write_trial(tmp_path, []))
    path = write_trial(tmp_path, {})
    path.write_text('{"tip_pose": [')
    with pytest.raises(ValueError, match="damaged"):
        read_trial(path)
    with pytest.raises(ValueError, match=r"\.json, \.h5 or \.hdf5"):
        read_trial(tmp_path / "trial.txt")


SQUARE = shape("rect1")
FRICTION = Friction(30.0, 0.25)
TOUCHING = 45 + TIP_RADIUS


def straight_trial(num_frames=4, angle=0.0):
    """The tip pushes the middle of the left side, 10 mm a frame."""
    shares = 10.0 * np.arange(num_frames)
    tips = np.stack([shares - TOUCHING, 0 * shares], 1)
    poses = np.stack([shares, 0 * shares, 0 * shares], 1)
    cosine, sine = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    matrix = np.asarray([[cosine, -sine], [sine, cosine]])
    turned = np.column_stack([poses[:, :2] @ matrix.T, poses[:, 2] + angle])
    return Frames(turned, tips @ matrix.T)


def test_a_chain_begins_where_the_last_trial_ended_and_never_passes_through_the_object():
    chain = chained(SQUARE, [straight_trial(), straight_trial(angle=90.0)], free_length=10.0)
    poses, tips, pushes = chain
    assert np.hypot(*np.diff(poses[:, :2], axis=0).T).max() == pytest.approx(10.0)
    # The second push is moved and turned so that it is like the first one.
    assert poses[-1] == pytest.approx([60, 0, 0], abs=1e-3)
    assert tips[-1] == pytest.approx([60 - TOUCHING, 0], abs=1e-3)
    assert (np.abs(tips - poses[:, :2]).max(1) > TOUCHING - 1e-3).all()
    moved = np.hypot(*np.diff(poses[:, :2], axis=0).T) > 1
    assert (pushes[:-1] == moved).all()
    assert 6 == moved.sum() < len(moved)
    with pytest.raises(ValueError, match="a trial at least"):
        chained(SQUARE, [])


def test_free_motion_goes_around_in_steps_that_are_not_too_long():
    start, end = np.asarray([-TOUCHING, 0.0]), np.asarray([TOUCHING, 10.0])
    path = free_path(SQUARE, np.zeros(3), start, end, 8.0)
    steps = np.hypot(*np.diff(np.stack([start, *path, end]), axis=0).T)
    assert steps.max() <= 8.0 + 1e-6
    assert steps.min() > 6.0
    assert (np.abs(path).max(1) > TOUCHING).all()


def test_labels_of_a_push_with_free_motion_before_and_after():
    push = straight_trial()
    before, after = [[-80.0, 0.0], [-70.0, 0.0], [-60.0, 0.0]], [[10.0 - TOUCHING, 0.0]]
    tips = np.concatenate([before, push.tips, after])
    poses = np.concatenate([np.zeros((3, 3)), push.poses, push.poses[-1:]])
    poses[:, 2] = np.where(np.arange(8) % 2, 180.0, -180.0)
    chain = Chain(poses, tips, np.ones(8, bool))
    sequence = jax.tree.map(lambda leaf: np.asarray(leaf)[0], labelled("rect1", chain, FRICTION))
    touches = sequence.touches
    assert touches.tolist() == [False] * 3 + [True] * 3 + [False]
    assert sequence.points[~touches] == pytest.approx(tips[:-1][~touches])
    assert np.abs(sequence.normals[~touches]).max() == 0
    assert np.hypot(*sequence.normals[touches].T) == pytest.approx(1.0)
    assert np.ptp(sequence.poses[:, 2]) == 0
    assert float(sequence.friction) == pytest.approx(9.0)
    assert float(sequence.half_angle) == pytest.approx(14.036, abs=1e-3)
    assert sequence.tips == pytest.approx(tips)
    with pytest.raises(ValueError, match=r"as many poses as tips, .* got 8 and 7"):
        labelled("rect1", chain._replace(tips=tips[1:]), FRICTION)


def test_the_contact_is_the_nearest_point_of_the_outline():
    push = straight_trial()
    sequence = labelled("rect1", Chain(push.poses, push.tips, np.ones(4, bool)), FRICTION)
    expected = push.tips[:-1] + np.asarray([TIP_RADIUS, 0.0])
    assert np.asarray(sequence.points[0]) == pytest.approx(expected, abs=1e-6)
    normals = np.tile([1.0, 0.0], (3, 1))
    assert np.asarray(sequence.normals[0]) == pytest.approx(normals, abs=1e-6)


def test_a_recorded_sequence_is_about_the_middle_of_the_image():
    sequence = recorded("rect1", [straight_trial(), straight_trial()], FRICTION)
    x, y = np.asarray(sequence.poses[0, :, :2]).T
    assert x.min() == pytest.approx(-30.0)
    assert y == pytest.approx(0.0 * y, abs=1e-6)
    # Where the tip touches, it is as far from the object as in the recording.
    touched = np.asarray(sequence.tips[0, :-1] - sequence.poses[0, :, :2])[sequence.touches[0]]
    assert touched[:, 0] == pytest.approx(np.full(6, -TOUCHING))


def test_the_real_trial(real_pushes):
    trial = read_trial(next(real_pushes.glob("motion_*.json")))
    assert trial.settings["shape"] == "hex"
    travel = trial.tip[-1, 1:] - trial.tip[0, 1:]
    assert np.hypot(*travel) == pytest.approx(50.0, abs=0.1)
    frames = resampled(trial)
    assert len(frames.tips) == 5
    sequence = recorded("hex", [frames, frames], FRICTION)
    touches = np.asarray(sequence.touches[0])
    assert touches[:4].tolist() == [True, True, True, False]
    assert touches.sum() == 6
    assert np.abs(sequence.poses[0, :, :2]).max() < 100
    # The tip touches the outline, to the accuracy of the registration.
    offsets = np.asarray(sequence.points[0] - sequence.tips[0, :-1])[touches]
    assert np.abs(np.hypot(*offsets.T) - TIP_RADIUS).max() < 1.5


def test_the_real_table(real_pushes):
    pushes = read_endpoints(find_endpoints(real_pushes))
    assert len(pushes) == 7242
    motions = pushes.motions
    assert np.abs(motions[:, 2]).max() < 120
    assert (np.abs((pushes.ends - pushes.starts)[:, 2]) > 180).sum() == 272
    assert np.median(np.hypot(*(pushes.tip_ends - pushes.tip_starts).T)) == pytest.approx(
        50, abs=0.1
    )
    some = dataclasses.replace(pushes[np.arange(3)])
    assert len(some) == 3
    assert wrapped_difference(some.ends, some.starts) == pytest.approx(motions[:3])
    assert jnp.isfinite(jnp.asarray(motions)).all()
