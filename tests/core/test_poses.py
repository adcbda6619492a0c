"""Files of poses: against rotations written out by hand, and against what tools make of them."""

import math

import numpy as np
import pytest

from filtrax import poses

RNG = np.random.default_rng(0)
STEPS = 30
TIMES = 1_700_000_000.1 + 0.1 * np.arange(STEPS)


def rotation_of(quaternion):
    """The rotation matrix of a quaternion (x, y, z, w), from the textbook."""
    x, y, z, w = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


QUATERNIONS = RNG.normal(size=(STEPS, 4))
# Half turns have no real part, where the simplest formula divides by zero.
QUATERNIONS[:4] = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
POSES = np.tile(np.eye(4), (STEPS, 1, 1))
POSES[:, :3, :3] = [rotation_of(quaternion) for quaternion in QUATERNIONS]
POSES[:, :3, 3] = 100 * RNG.normal(size=(STEPS, 3))


def test_tum_rows_are_time_position_and_quaternion_with_the_real_part_last(tmp_path):
    # Rejects w first, and rows whose quaternion turns the other way round.
    poses.write_tum(tmp_path / "a.txt", TIMES, POSES)
    rows = np.loadtxt(tmp_path / "a.txt")
    assert rows.shape == (STEPS, 8)
    np.testing.assert_array_equal(rows[:, 0], TIMES)
    np.testing.assert_array_equal(rows[:, 1:4], POSES[:, :3, 3])
    assert (rows[:, 7] >= 0).all()
    for row, pose in zip(rows, POSES, strict=True):
        np.testing.assert_allclose(rotation_of(row[4:]), pose[:3, :3], atol=1e-12)


def test_tum_files_are_read_as_they_were_written(tmp_path):
    # Rejects times that are rounded: a microsecond of Unix time takes 16 digits.
    poses.write_tum(tmp_path / "a.txt", TIMES, POSES[:, :3])
    times, found = poses.read_tum(tmp_path / "a.txt")
    np.testing.assert_array_equal(times, TIMES)
    np.testing.assert_allclose(found, POSES, atol=1e-12)


def test_tum_files_of_others_have_comments_and_few_digits(tmp_path):
    # Rejects quaternions that are used as they are, without their length set to one.
    text = "# time x y z qx qy qz qw\n\n1.5 1 2 3 0 0 0.7071 0.7071\n  2 0 0 0 0 0 0 -1 \n"
    (tmp_path / "a.txt").write_text(text)
    times, found = poses.read_tum(tmp_path / "a.txt")
    assert times.tolist() == [1.5, 2.0]
    expected = [[0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]]
    np.testing.assert_allclose(found, [expected, np.eye(4)], atol=1e-12)


def test_kitti_rows_are_matrices_row_by_row_and_read_as_they_were(tmp_path):
    # Rejects columns in the place of rows.
    poses.write_kitti(tmp_path / "a.txt", POSES)
    rows = np.loadtxt(tmp_path / "a.txt")
    np.testing.assert_array_equal(rows[5, :4], POSES[5, 0])
    np.testing.assert_array_equal(rows[5, [3, 7, 11]], POSES[5, :3, 3])
    np.testing.assert_array_equal(poses.read_kitti(tmp_path / "a.txt"), POSES)


def test_poses_of_the_plane_turn_from_x_to_y(tmp_path):
    # Rejects a heading that turns clockwise, or is lost on the way.
    rows = np.array([[1.0, 2.0, 0.5], [3.0, -1.0, -3.0]])
    matrices = poses.planar(*rows.T)
    for (x, y, heading), matrix in zip(rows, matrices, strict=True):
        ahead = matrix @ [2.0, 0.0, 0.0, 1.0]
        np.testing.assert_allclose(
            ahead, [x + 2 * math.cos(heading), y + 2 * math.sin(heading), 0, 1]
        )
        np.testing.assert_allclose(np.linalg.det(matrix), 1)
    np.testing.assert_allclose(poses.to_plane(matrices), rows)
    for write, read in (
        (poses.write_kitti, poses.read_kitti),
        (lambda path, part: poses.write_tum(path, [0, 1], part), lambda p: poses.read_tum(p)[1]),
    ):
        write(tmp_path / "a.txt", rows)
        np.testing.assert_allclose(poses.to_plane(read(tmp_path / "a.txt")), rows)


def test_a_heading_is_found_for_a_body_that_also_pitches_and_rolls():
    # Rejects the angle between the y axes, which pitch and roll change together.
    pitch = rotation_of(np.array([0, math.sin(0.3), 0, math.cos(0.3)]))
    roll = rotation_of(np.array([math.sin(0.4), 0, 0, math.cos(0.4)]))
    matrix = poses.planar([1.0], [2.0], [0.7])
    matrix[0, :3, :3] = matrix[0, :3, :3] @ pitch @ roll
    np.testing.assert_allclose(poses.to_plane(matrix), [[1.0, 2.0, 0.7]])


BAD_FILES = {
    "1 2 3\n": r"a\.txt, row 1: a pose must have {width} numbers .*, found 3",
    "{good}\n# c\n{good} 1\n": r"row 3: a pose must have {width} numbers .*, found {more}",
    "{good}\n{half} x\n": r"row 2: finite numbers must stand here, found 'x'",
    "{good}\n{half} nan\n": r"row 2: finite numbers must stand here, found 'nan'",
    "\x00": r"must have {width} numbers",
}
GOOD = {"tum": "1 0 0 0 0 0 0 1", "kitti": "1 0 0 0 0 1 0 0 0 0 1 0"}
READ = {"tum": poses.read_tum, "kitti": poses.read_kitti}


@pytest.mark.parametrize("form", READ)
@pytest.mark.parametrize("text", BAD_FILES)
def test_a_malformed_file_is_refused_with_its_row(text, form, tmp_path):
    # Rejects the number of the pose, which comments and empty rows shift.
    good = GOOD[form]
    words = {"good": good, "half": good.rpartition(" ")[0]}
    (tmp_path / "a.txt").write_text(text.format(**words))
    width = len(good.split())
    message = BAD_FILES[text].replace("{width}", str(width)).replace("{more}", str(width + 1))
    with pytest.raises(ValueError, match=message):
        READ[form](tmp_path / "a.txt")


def test_what_is_no_pose_is_refused_with_its_row(tmp_path):
    # Rejects a reader that turns any numbers into poses.
    path = tmp_path / "a.txt"
    path.write_text(f"{GOOD['tum']}\n2 0 0 0 0 0 0 2\n")
    with pytest.raises(ValueError, match=r"row 2: a quaternion must have length 1, found 2"):
        poses.read_tum(path)
    path.write_text(f"{GOOD['tum']}\n\n{GOOD['tum']}\n")
    with pytest.raises(ValueError, match=r"row 3: times must increase, found a step of 0 s"):
        poses.read_tum(path)
    path.write_text("1 0 0 0 0 1 0 0 0 0 2 0\n")
    with pytest.raises(ValueError, match=r"row 1: a pose must have an orthogonal rotation"):
        poses.read_kitti(path)
    path.write_text("1 0 0 0 0 1 0 0 0 0 -1 0\n")
    with pytest.raises(ValueError, match=r"row 1: .* found a reflection"):
        poses.read_kitti(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"a\.txt must be a text file of poses"):
        poses.read_kitti(path)


def test_what_is_no_pose_is_not_written_and_leaves_the_file_as_it_was(tmp_path):
    # Rejects a file that is emptied before the poses are looked at.
    path = tmp_path / "a.txt"
    path.write_text("old")
    skew, lost = POSES.copy(), POSES.copy()
    skew[3, 0, 0] += 0.1
    lost[4, 0, 3] = np.nan
    with pytest.raises(ValueError, match=r"`poses\[3\]` must have an orthogonal rotation"):
        poses.write_kitti(path, skew)
    with pytest.raises(ValueError, match=r"`poses\[4\]` must be finite"):
        poses.write_tum(path, TIMES, lost)
    with pytest.raises(ValueError, match=r"`poses` must have shape .* got \(30, 4\)"):
        poses.write_kitti(path, POSES[:, 0])
    with pytest.raises(ValueError, match=r"`times` must have shape \(30,\), got \(3,\)"):
        poses.write_tum(path, [1, 2, 3], POSES)
    with pytest.raises(ValueError, match=r"increase, but `times\[2\]` is 1.0"):
        poses.write_tum(path, [0, 1, 1, *range(2, 29)], POSES)
    with pytest.raises(ValueError, match=r"`times\[1\]` is nan"):
        poses.write_tum(path, [0, np.nan, 1], POSES[:3])
    with pytest.raises(ValueError, match=r"`y` must have shape \(2,\), got \(3,\)"):
        poses.planar([0, 1], [0, 1, 2], [0, 1])
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_poses_of_single_precision_are_taken(tmp_path):
    # Rejects a tolerance that only double precision meets.
    poses.write_kitti(tmp_path / "a.txt", POSES.astype(np.float32))
    poses.write_tum(tmp_path / "b.txt", TIMES, POSES.astype(np.float32))
    found = poses.read_tum(tmp_path / "b.txt")[1]
    np.testing.assert_allclose(found, POSES, rtol=1e-5, atol=1e-5)


def test_no_poses_make_an_empty_file(tmp_path):
    # Rejects an error about an array of shape (0,).
    poses.write_tum(tmp_path / "a.txt", [], np.zeros((0, 4, 4)))
    times, found = poses.read_tum(tmp_path / "a.txt")
    assert times.shape == (0,)
    assert found.shape == (0, 4, 4)
    poses.write_kitti(tmp_path / "a.txt", np.zeros((0, 3)))
    assert poses.read_kitti(tmp_path / "a.txt").shape == (0, 4, 4)


@pytest.mark.filterwarnings("ignore")
def test_evo_finds_the_error_that_we_made(tmp_path):
    # Rejects files that only we can read, in order, frame or unit.
    pytest.importorskip("evo")
    from evo.core.metrics import APE, PoseRelation
    from evo.tools.file_interface import read_kitti_poses_file, read_tum_trajectory_file

    # Each pose is 0.3 m off along a direction of its own, and turned by 0.1 rad about an axis.
    ways = RNG.normal(size=(STEPS, 3))
    ways /= np.linalg.norm(ways, axis=-1, keepdims=True)
    estimates = POSES.copy()
    estimates[:, :3, 3] += 0.3 * ways
    half = np.concatenate([math.sin(0.05) * ways, np.full((STEPS, 1), math.cos(0.05))], -1)
    estimates[:, :3, :3] = estimates[:, :3, :3] @ [rotation_of(q) for q in half]
    poses.write_tum(tmp_path / "true.txt", TIMES, POSES)
    poses.write_tum(tmp_path / "found.txt", TIMES, estimates)
    poses.write_kitti(tmp_path / "true.kitti", POSES)
    poses.write_kitti(tmp_path / "found.kitti", estimates)
    for read, ending in ((read_tum_trajectory_file, "txt"), (read_kitti_poses_file, "kitti")):
        pair = read(str(tmp_path / f"true.{ending}")), read(str(tmp_path / f"found.{ending}"))
        for relation, error in (
            (PoseRelation.translation_part, 0.3),
            (PoseRelation.rotation_angle_rad, 0.1),
        ):
            ape = APE(relation)
            ape.process_data(pair)
            np.testing.assert_allclose(ape.error, error, atol=1e-7)
