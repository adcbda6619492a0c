"""The roads of a drive: short straight pieces along its path, and a grid to find the nearest.

A car that returns to a street drives on the same road, so parts of the path that run along an
earlier part add no road.
"""

import dataclasses

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

PIECE = 2.5
"""The length of a piece of road in metres."""

SAME_ROAD = 7.0
"""Parallel parts of a path within this distance in metres share a road."""

HIGHWAY_SPEED = 17.0
"""The speed above which a road is a highway, in m/s."""

SPEED_SMOOTHING = 61
"""The distance over which speeds are averaged to find highways, in metres."""

CELL = 1.0
"""The width of a cell of the grid in metres."""

REACH = 40.0
"""The distance from roads within which cells have a nearest piece, in metres; beyond is grass."""

LEAST_PIECES, LEAST_CELLS = 1 << 11, 1 << 22
"""Array sizes that suffice for all of KITTI's drives, so that they share a compiled program."""


@dataclasses.dataclass(frozen=True)
class Path:
    """Points at equal distances along the path of a car.

    **Attributes:**

    - `points`: x and z in metres.
    - `directions`: unit vectors.
    - `highway`: from 0 in a town to 1 on a highway.
    """

    points: np.ndarray
    directions: np.ndarray
    highway: np.ndarray

    @property
    def right(self) -> np.ndarray:
        """The unit vectors to the right."""
        return np.stack([self.directions[:, 1], -self.directions[:, 0]], -1)

    def __getitem__(self, index: np.ndarray) -> "Path":
        return Path(self.points[index], self.directions[index], self.highway[index])


class Roads(eqx.Module):
    """Pieces of road, and a grid with the nearest piece for each cell.

    **Attributes:**

    - `pieces`: rows of x and z of the middle, direction (2), half width, metres along the path,
      and `highway` as in `Path`.
    - `nearest`: the index of a piece for each cell, row by row; -1 if there is none.
    - `corner`: x and z of the corner of the grid.
    - `shape`: its number of rows (along z) and columns (along x).
    """

    pieces: Float[Array | np.ndarray, "pieces 7"]
    nearest: Int[Array | np.ndarray, " cells"]
    corner: Float[Array | np.ndarray, " 2"]
    shape: Int[Array | np.ndarray, " 2"]


def half_width(highway: np.ndarray) -> np.ndarray:
    """Returns the distance from the middle of the road to the kerb in metres."""
    return 3.8 + 2.2 * highway


def middle_to_car(highway: np.ndarray) -> np.ndarray:
    """Returns the distance of the car to the right of the middle of the road in metres."""
    return 1.7 + 0.3 * highway


def follow(poses: np.ndarray, times: np.ndarray, step: float = PIECE) -> Path:
    """Returns the path of a car, extended straight by 100 m at both ends, as far as cameras see."""
    points = poses[:, [0, 2], 3]
    lengths = np.hypot(*np.diff(points, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(lengths)])
    speeds = _speeds(lengths, times, along)
    # Ignore repeated positions of a standing car.
    moving = np.concatenate([[True], np.diff(along) > 1e-3])
    wanted = np.arange(0.0, max(along[-1], step) + step / 2, step)
    points = np.stack([np.interp(wanted, along[moving], points[moving, i]) for i in (0, 1)], -1)
    if along[-1] < step:
        ahead = np.stack([poses[0, 0, 2], poses[0, 2, 2]])
        points = poses[0, [0, 2], 3] + wanted[:, None] * ahead / np.linalg.norm(ahead)
    points = _prolonged(points, step)
    directions = np.gradient(points, axis=0)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    speed = np.interp((np.arange(len(points)) - _extra(step)) * step, along, speeds)
    return Path(points, directions, np.clip((speed - HIGHWAY_SPEED) / 4 + 0.5, 0.0, 1.0))


def first_visits(path: Path) -> np.ndarray:
    """Returns a mask of the points of a path that are not on the road of an earlier part."""
    kept = np.zeros(len(path.points), bool)
    recent = int(40 / PIECE)
    for index in range(len(path.points)):
        earlier = np.flatnonzero(kept[: max(index - recent, 0)])
        gaps = path.points[earlier] - path.points[index]
        parallel = np.abs(path.directions[earlier] @ path.directions[index]) > 0.8
        kept[index] = not (parallel & (np.hypot(*gaps.T) < SAME_ROAD)).any()
    return kept


def build_roads(path: Path) -> Roads:
    """Builds the roads along a path, and the grid over them."""
    chosen = first_visits(path)
    road, along = path[chosen], np.flatnonzero(chosen) * PIECE
    middles = road.points - middle_to_car(road.highway)[:, None] * road.right
    pieces = np.column_stack(
        [middles, road.directions, half_width(road.highway), along, road.highway]
    )
    corner = np.floor(path.points.min(0) - 2 * REACH)
    columns, rows = np.ceil((path.points.max(0) + 2 * REACH - corner) / CELL).astype(int)
    nearest = _nearest_pieces(middles, corner, (int(rows), int(columns)))
    return Roads(
        _padded(pieces.astype(np.float32), 0, LEAST_PIECES),
        _padded(nearest.reshape(-1), -1, LEAST_CELLS),
        corner.astype(np.float32),
        np.asarray([rows, columns], np.int32),
    )


def _nearest_pieces(middles: np.ndarray, corner: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Returns for each cell the index of the piece nearest to its centre, or -1."""
    nearest = np.full(shape, -1, np.int32)
    distances = np.full(shape, REACH**2)
    reach = int(REACH / CELL)
    for number, middle in enumerate(middles):
        column, row = np.floor((middle - corner) / CELL).astype(int)
        window = np.s_[row - reach : row + reach + 1, column - reach : column + reach + 1]
        cells = np.arange(-reach, reach + 1) + 0.5
        across = corner[0] + (column + cells) * CELL - middle[0]
        ahead = corner[1] + (row + cells) * CELL - middle[1]
        squares = ahead[:, None] ** 2 + across**2
        nearer = squares < distances[window]
        distances[window][nearer] = squares[nearer]
        nearest[window][nearer] = number
    return nearest


def _padded(rows: np.ndarray, value: int, least: int) -> np.ndarray:
    """Pads rows to a power of two, at least `least`, so that drives share a compiled program."""
    size = max(1 << max(len(rows) - 1, 1).bit_length(), least)
    widths = [(0, size - len(rows))] + [(0, 0)] * (rows.ndim - 1)
    return np.pad(rows, widths, constant_values=value)


def _speeds(lengths: np.ndarray, times: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Returns speeds at all frames, averaged over `SPEED_SMOOTHING` metres."""
    if len(lengths) == 0:
        return np.zeros(len(along))
    speeds = lengths / np.diff(times)
    speeds = np.append(speeds, speeds[-1])
    metres = np.arange(0.0, along[-1] + 1.0)
    each = np.pad(np.interp(metres, along, speeds), SPEED_SMOOTHING // 2, mode="edge")
    means = np.convolve(each, np.full(SPEED_SMOOTHING, 1 / SPEED_SMOOTHING), mode="valid")
    return np.interp(along, metres, means)


def _extra(step: float) -> int:
    return int(100 / step)


def _prolonged(points: np.ndarray, step: float) -> np.ndarray:
    """Extends a path by 100 m at both ends, in the directions of its ends."""
    away = np.arange(1, _extra(step) + 1)[:, None] * step
    few = min(4, len(points) - 1)
    start, end = points[0] - points[few], points[-1] - points[-1 - few]
    start, end = start / np.linalg.norm(start), end / np.linalg.norm(end)
    return np.concatenate([(points[0] + away * start)[::-1], points, points[-1] + away * end])
