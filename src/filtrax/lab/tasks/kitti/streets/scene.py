"""Objects along the road: buildings, hedges, parked cars, trees, poles and guard rails.

All are upright boxes, columns or crowns. They are drawn from a seed and do not move, so that a
street looks the same when the car returns. No object is on the path of the car at any time.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

from filtrax.lab.tasks.kitti.streets.roads import (
    PIECE,
    Path,
    Roads,
    build_roads,
    first_visits,
    middle_to_car,
)
from filtrax.lab.tasks.kitti.streets.roads import half_width as road_half_width

BUILDING, CAR, HEDGE, RAIL, COLUMN, CROWN = range(6)
"""Kinds of objects; `COLUMN` and `CROWN` are round, the others boxes."""

LEAST_OBJECTS = 4096
"""The smallest number of objects in a scene. It suffices for all of KITTI's drives, so that they
share a compiled program; missing objects are placed out of sight."""


class Objects(eqx.Module):
    """Upright objects, one per row.

    **Attributes:**

    - `places`: x and z of the centre, in metres.
    - `axes`: unit vectors along the object.
    - `halves`: half the length along the axis, and half the width across it; radii of round
      objects.
    - `heights`: heights of the lower end, the upper end, and the eaves of a building, in metres.
    - `kinds`: the kinds of objects, such as `BUILDING`.
    - `colors`: reflectance in red, green and blue, and a number that varies the texture.
    """

    places: Float[Array | np.ndarray, "n 2"]
    axes: Float[Array | np.ndarray, "n 2"]
    halves: Float[Array | np.ndarray, "n 2"]
    heights: Float[Array | np.ndarray, "n 3"]
    kinds: Int[Array | np.ndarray, " n"]
    colors: Float[Array | np.ndarray, "n 4"]


class Scene(eqx.Module):
    """A world to drive in: roads, and the objects beside them."""

    roads: Roads
    objects: Objects


@dataclasses.dataclass(frozen=True)
class _Row:
    """Objects of one kind along the road.

    **Attributes:**

    - `kind`: the kind of objects.
    - `spacing`: the distance between places for objects, in metres.
    - `town`, `highway`: the probabilities that there is an object, in a town and on a highway.
    - `clearance`: the smallest distance from the path of the car, in metres.
    - `shape`: maps uniform numbers (n, 16) to the distance from the kerb to the nearer side, half
      the length, half the width, and the heights of lower end, upper end and eaves.
    - `color`: maps uniform numbers (n, 4) to red, green and blue.
    """

    kind: int
    spacing: float
    town: float
    highway: float
    clearance: float
    shape: Callable[[np.ndarray], np.ndarray]
    color: Callable[[np.ndarray], np.ndarray]


def _between(*ranges: tuple[float, float]) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that maps columns of uniform numbers to ranges."""
    low, high = np.asarray(ranges).T
    return lambda uniforms: low + (high - low) * uniforms[:, : len(low)]


def _building_shape(uniforms: np.ndarray) -> np.ndarray:
    ranges = _between((2.5, 7.0), (4.0, 6.8), (3.5, 6.0), (0.0, 0.0), (0.0, 0.0), (5.0, 11.0))
    shape = ranges(uniforms)
    # The roof is two to five metres higher than the eaves.
    shape[:, 4] = shape[:, 5] + 2.0 + 3.0 * uniforms[:, 6]
    return shape


def _palette(*colors: tuple[float, float, float]) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that draws one of several colours with random brightness."""
    table = np.asarray(colors)
    return lambda uniforms: (
        table[(uniforms[:, 0] * len(table)).astype(int)] * (0.7 + 0.5 * uniforms[:, 1:2])
    )


_GREEN = _palette((0.045, 0.075, 0.02), (0.06, 0.08, 0.03), (0.03, 0.055, 0.02))
_PAINT = _palette(
    (0.02, 0.02, 0.025), (0.03, 0.03, 0.035), (0.3, 0.31, 0.32), (0.5, 0.5, 0.5),
    (0.05, 0.06, 0.12), (0.15, 0.02, 0.02), (0.1, 0.105, 0.11),
)  # fmt: skip
_PLASTER = _palette(
    (0.72, 0.69, 0.6), (0.75, 0.75, 0.73), (0.6, 0.5, 0.34), (0.5, 0.35, 0.27),
    (0.34, 0.34, 0.33), (0.72, 0.62, 0.42), (0.25, 0.17, 0.13),
)  # fmt: skip

_ROWS = (
    _Row(BUILDING, 16.0, 0.85, 0.03, 4.0, _building_shape, _PLASTER),
    _Row(
        HEDGE, 9.0, 0.45, 0.1, 3.0,
        _between((1.9, 2.4), (2.5, 4.4), (0.3, 0.6), (0.0, 0.0), (0.8, 1.9), (0.0, 0.0)), _GREEN,
    ),
    _Row(
        CAR, 6.5, 0.45, 0.0, 1.9,
        _between((-0.3, 0.1), (1.9, 2.3), (0.8, 0.9), (0.0, 0.0), (1.4, 1.6), (0.0, 0.0)), _PAINT,
    ),
    _Row(
        COLUMN, 26.0, 0.8, 0.3, 1.5,
        _between((0.5, 0.8), (0.07, 0.12), (0.0, 0.0), (0.0, 0.0), (3.0, 8.0), (0.0, 0.0)),
        _palette((0.2, 0.2, 0.2), (0.1, 0.1, 0.1)),
    ),
    _Row(
        RAIL, 8.0, 0.0, 1.0, 2.0,
        _between((0.8, 0.8), (4.0, 4.0), (0.1, 0.1), (0.4, 0.4), (0.75, 0.75), (0.0, 0.0)),
        _palette((0.32, 0.33, 0.34)),
    ),
)  # fmt: skip

_TREES = (
    _Row(
        CROWN, 9.0, 0.35, 0.0, 0.5,
        _between((0.2, 1.6), (1.4, 2.8), (0.0, 0.0), (1.7, 2.6), (5.0, 9.0), (0.0, 0.0)), _GREEN,
    ),
    # Woods beside highways, and behind the houses of towns.
    _Row(
        CROWN, 7.0, 0.25, 0.8, 2.0,
        _between((9.0, 20.0), (2.2, 4.2), (0.0, 0.0), (0.0, 1.5), (7.0, 13.0), (0.0, 0.0)), _GREEN,
    ),
)  # fmt: skip


def build_scene(path: Path, seed: int) -> Scene:
    """Draws the world around a path."""
    rng = np.random.default_rng([seed, len(path.points)])
    road = path[first_visits(path)]
    parts = [_draw_row(row, road, rng) for row in _ROWS]
    for row in _TREES:
        crowns = _draw_row(row, road, rng)
        parts += [_cleared(row, crowns, path)]
        parts += [_trunks(parts[-1])]
    cleared = [_cleared(row, part, path) for row, part in zip(_ROWS, parts, strict=False)]
    cleared[0] = _without_overlap(cleared[0])
    objects = _joined(cleared + parts[len(_ROWS) :])
    return Scene(build_roads(path), _filled_up(objects))


def _draw_row(row: _Row, road: Path, rng: np.random.Generator) -> Objects:
    """Draws objects of a row at random places on both sides of the road."""
    stride = max(round(row.spacing / PIECE), 1)
    index = np.repeat(np.arange(0, len(road.points), stride), 2)
    sides = np.where(np.arange(len(index)) % 2 == 0, 1.0, -1.0)
    uniforms = rng.uniform(size=(len(index), 16))
    chance = row.town + (row.highway - row.town) * road.highway[index]
    # Vary the probabilities slowly along the path.
    waves = np.sin(index * PIECE / 37.0 + rng.uniform(0, 6.28) + 2.0 * sides)
    chosen = uniforms[:, 15] < chance * (1.0 + 0.4 * waves)
    index, sides, uniforms = index[chosen], sides[chosen], uniforms[chosen]
    shape, at = row.shape(uniforms), road[index]
    round_shape = row.kind >= COLUMN
    outwards = shape[:, 1] if round_shape else shape[:, 2]
    highway = at.highway
    aside = sides * (road_half_width(highway) + shape[:, 0] + outwards) - middle_to_car(highway)
    along = (uniforms[:, 14] - 0.5) * 0.3 * row.spacing
    halves = shape[:, [1, 1]] if round_shape else shape[:, [1, 2]]
    return Objects(
        at.points + aside[:, None] * at.right + along[:, None] * at.directions,
        at.directions,
        halves,
        shape[:, 3:6],
        np.full(len(index), row.kind),
        np.column_stack([row.color(uniforms[:, 8:12]), np.floor(uniforms[:, 12] * 1000)]),
    )


def _trunks(crowns: Objects) -> Objects:
    """Returns the trunks of trees with these crowns."""
    count = len(crowns.kinds)
    thickness = 0.06 * crowns.halves + 0.06
    heights = np.column_stack([np.zeros(count), crowns.heights[:, 0] + 1.0, np.zeros(count)])
    colors = np.column_stack([np.tile([0.05, 0.04, 0.03], (count, 1)), crowns.colors[:, 3]])
    kinds = np.full(count, COLUMN)
    return Objects(crowns.places, crowns.axes, thickness, heights, kinds, colors)


def _cleared(row: _Row, objects: Objects, path: Path) -> Objects:
    """Removes objects that are closer than `row.clearance` to any part of the path."""
    free = np.ones(len(objects.kinds), bool)
    for number, (place, axis, halves) in enumerate(
        zip(objects.places, objects.axes, objects.halves, strict=True)
    ):
        gaps = path.points - place
        local = np.abs(np.stack([gaps @ axis, gaps @ np.array([axis[1], -axis[0]])]))
        outside = np.maximum(local - halves[:, None], 0.0)
        free[number] = (outside**2).sum(0).min() > row.clearance**2
    return _chosen(objects, free)


def _without_overlap(objects: Objects) -> Objects:
    """Removes buildings that overlap an earlier one too much."""
    radii = objects.halves.mean(1)
    kept = np.zeros(len(radii), bool)
    for number in range(len(radii)):
        gaps = np.hypot(*(objects.places[kept] - objects.places[number]).T)
        kept[number] = (gaps > 0.95 * (radii[kept] + radii[number])).all()
    return _chosen(objects, kept)


def _chosen(objects: Objects, chosen: np.ndarray) -> Objects:
    return Objects(*(getattr(objects, part.name)[chosen] for part in dataclasses.fields(objects)))


def _joined(parts: list[Objects]) -> Objects:
    names = [part.name for part in dataclasses.fields(Objects)]
    return Objects(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _filled_up(objects: Objects) -> Objects:
    """Pads rows to a power of two with objects out of sight, and converts them to float32."""
    count = len(objects.kinds)
    size = max(1 << (count - 1).bit_length() if count else 1, LEAST_OBJECTS)
    arrays = {}
    for part in dataclasses.fields(objects):
        array = getattr(objects, part.name)
        fill = 1e6 if part.name == "places" else 0.0
        widths = [(0, size - count)] + [(0, 0)] * (array.ndim - 1)
        dtype = np.int32 if part.name == "kinds" else np.float32
        arrays[part.name] = np.pad(array, widths, constant_values=fill).astype(dtype)
    return Objects(**arrays)
