"""Files of poses that tools for odometry and SLAM read: those of TUM and of KITTI.

Poses are matrices of shape [T, 4, 4] that map points of the moving body into the world. Functions
that write also take [T, 3, 4], and poses of the plane as rows (x, y, heading).
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from filtrax._checks import check_shape
from filtrax._files import write_whole

ROUNDING = 1e-3
"""How far a rotation in a file may be from a rotation; some files have four digits."""

Poses = Float[np.ndarray, "t 4 4"]


def planar(x: Any, y: Any, heading: Any) -> Poses:
    """Poses in the plane z = 0, turned about its normal.

    `heading` is in radians, from the x axis towards the y axis.
    """
    x, y, heading = (np.asarray(part, float) for part in (x, y, heading))
    if x.ndim != 1:
        raise ValueError(f"`x` must have one entry for each pose, got shape {x.shape}.")
    check_shape("y", y, x.shape)
    check_shape("heading", heading, x.shape)
    poses = np.tile(np.eye(4), (len(x), 1, 1))
    cos, sin = np.cos(heading), np.sin(heading)
    poses[:, 0, 0], poses[:, 0, 1], poses[:, 1, 0], poses[:, 1, 1] = cos, -sin, sin, cos
    poses[:, 0, 3], poses[:, 1, 3] = x, y
    return poses


def to_plane(poses: Any) -> Float[np.ndarray, "t 3"]:
    """Rows (x, y, heading) of poses, seen from above: the inverse of `planar`.

    `heading` is the direction of the body's x axis in the plane, in radians.
    """
    poses = as_matrices(poses)
    heading = np.arctan2(poses[:, 1, 0], poses[:, 0, 0])
    return np.stack([poses[:, 0, 3], poses[:, 1, 3], heading], -1)


def as_matrices(poses: Any) -> Poses:
    """Poses as matrices of shape [T, 4, 4], or an error that says which pose is none."""
    poses = np.asarray(poses, float)
    if poses.ndim == 2 and poses.shape[1] == 3:
        matrices = planar(*poses.T)
    elif poses.ndim == 3 and poses.shape[1:] in ((3, 4), (4, 4)):
        matrices = np.tile(np.eye(4), (len(poses), 1, 1))
        matrices[:, : poses.shape[1]] = poses
    else:
        raise ValueError(
            "`poses` must have shape [T, 4, 4], [T, 3, 4], or [T, 3] with rows (x, y, heading), "
            f"got {poses.shape}."
        )
    for number, matrix in enumerate(matrices):
        problem = _problem(matrix)
        if problem is not None:
            raise ValueError(f"`poses[{number}]` {problem}.")
    return matrices


def write_tum(path: str | Path, times: Any, poses: Any) -> None:
    """Writes poses with their times as TUM's tools read them: `t tx ty tz qx qy qz qw` per row.

    Times are in seconds and increase. The file is complete or not there, and numbers are read back
    as they were.
    """
    matrices, times = as_matrices(poses), np.asarray(times, float)
    check_shape("times", times, (len(matrices),))
    late = np.flatnonzero(~(np.diff(times) > 0))
    if not np.isfinite(times).all() or late.size:
        first = int(late[0]) + 1 if late.size else int(np.argmin(np.isfinite(times)))
        raise ValueError(
            f"`times` must be finite and increase, but `times[{first}]` is {times[first]}."
        )
    quaternions = np.zeros((0, 4))
    if len(matrices):
        quaternions = Rotation.from_matrix(matrices[:, :3, :3]).as_quat(canonical=True)
    _write(path, np.concatenate([times[:, None], matrices[:, :3, 3], quaternions], -1))


def read_tum(path: str | Path) -> tuple[Float[np.ndarray, " t"], Poses]:
    """Times and poses of a file of TUM's format; rows that begin with `#` are comments."""
    path = Path(path)
    numbers, rows = _read(path, 8, "t tx ty tz qx qy qz qw")
    lengths = np.linalg.norm(numbers[:, 4:], axis=-1)
    for row, length in zip(rows, lengths, strict=True):
        if abs(length - 1) > ROUNDING:
            raise _malformed(path, row, f"a quaternion must have length 1, found {length:.6g}")
    for row, step in zip(rows[1:], np.diff(numbers[:, 0]), strict=True):
        if not step > 0:
            raise _malformed(path, row, f"times must increase, found a step of {step:.6g} s")
    poses = np.tile(np.eye(4), (len(numbers), 1, 1))
    poses[:, :3, 3] = numbers[:, 1:4]
    if len(numbers):
        poses[:, :3, :3] = Rotation.from_quat(numbers[:, 4:]).as_matrix()
    return numbers[:, 0], poses


def write_kitti(path: str | Path, poses: Any) -> None:
    """Writes poses as KITTI's odometry benchmark does: the 12 numbers of a 3 × 4 matrix per row.

    The file is complete or not there, and numbers are read back as they were.
    """
    _write(path, as_matrices(poses)[:, :3].reshape(-1, 12))


def read_kitti(path: str | Path) -> Poses:
    """The poses of a file of KITTI's format."""
    path = Path(path)
    numbers, rows = _read(path, 12, "the rows of a 3 × 4 matrix")
    poses = np.tile(np.eye(4), (len(numbers), 1, 1))
    poses[:, :3] = numbers.reshape(-1, 3, 4)
    for row, pose in zip(rows, poses, strict=True):
        problem = _problem(pose)
        if problem is not None:
            raise _malformed(path, row, f"a pose {problem}")
    return poses


def _problem(matrix: Float[np.ndarray, "4 4"]) -> str | None:
    """The reason why a matrix is not a pose, or None."""
    if not np.isfinite(matrix).all():
        return "must be finite"
    if not np.array_equal(matrix[3], [0, 0, 0, 1]):
        return f"must have the last row (0, 0, 0, 1), found {tuple(matrix[3].tolist())}"
    rotation = matrix[:3, :3]
    skew = np.abs(rotation @ rotation.T - np.eye(3)).max()
    if skew > ROUNDING:
        return f"must have an orthogonal rotation, found R Rᵀ off by {skew:.3g} from the identity"
    if np.linalg.det(rotation) < 0:
        return "must have a rotation, found a reflection of determinant -1"
    return None


def _write(path: str | Path, rows: Float[np.ndarray, "t n"]) -> None:
    # `repr` is the shortest text that is read as the same number.
    text = "".join(" ".join(map(repr, row)) + "\n" for row in rows.tolist())
    write_whole(Path(path), lambda file: file.write(text.encode()))


def _read(path: Path, width: int, form: str) -> tuple[Float[np.ndarray, "t n"], list[int]]:
    """The numbers of a file, and the row of the file in which each pose stands."""
    values, rows = [], []
    for row, words in _lines(path):
        if len(words) != width:
            problem = f"a pose must have {width} numbers ({form}), found {len(words)}"
            raise _malformed(path, row, problem)
        values.append(_numbers(path, row, words))
        rows.append(row)
    return np.array(values, float).reshape(-1, width), rows


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The words of each row that has any, with the number of the row from 1 on."""
    try:
        text = path.read_text()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be a text file of poses, found other bytes.") from error
    for row, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield row, words


def _numbers(path: Path, row: int, words: Sequence[str]) -> list[float]:
    numbers = []
    for word in words:
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise _malformed(path, row, f"finite numbers must stand here, found {word!r}")
        numbers.append(number)
    return numbers


def _malformed(path: Path, row: int, problem: str) -> ValueError:
    return ValueError(f"{path}, row {row}: {problem}.")
