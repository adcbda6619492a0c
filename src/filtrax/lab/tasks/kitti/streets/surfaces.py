"""Colours of surfaces: the ground, objects, the sky, and distant hills.

Colours are light that reaches the camera, in linear units; 1 is white at the mean exposure.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from filtrax.lab.tasks.kitti.streets.columns import Hit
from filtrax.lab.tasks.kitti.streets.light import Light
from filtrax.lab.tasks.kitti.streets.roads import CELL, Roads
from filtrax.lab.tasks.kitti.streets.scene import BUILDING, CAR, COLUMN, CROWN, HEDGE, Objects
from filtrax.lab.tasks.kitti.streets.textures import band, grid_of_rectangles, noise, octaves

Field = Float[Array, "rows columns"]
Color = Float[Array, "rows columns 3"]

ASPHALT, KERB, PAVEMENT, PAINT = 0.105, 0.3, 0.2, 0.75
GRASS = (0.09, 0.115, 0.045)
ROOF = (0.16, 0.085, 0.06)
GLASS = (0.035, 0.04, 0.05)
HAZE = (0.42, 0.46, 0.52)
WOODS = (0.06, 0.075, 0.05)
BLUE = (0.42, 0.55, 0.75)

HAZE_DISTANCE = 450.0
"""The distance in metres after which haze has replaced two thirds of a colour."""

STOREY = 2.9
"""The height of a storey, and about the distance between windows, in metres."""


def tone(color: tuple[float, ...]) -> Float[Array, "1 1 3"]:
    """Returns a colour with axes for rows and columns."""
    return jnp.asarray(color, jnp.float32)[None, None]


def ground(
    roads: Roads,
    place: Float[Array, "rows columns 2"],
    footprint: Field,
    width: Field,
    light: Light,
) -> Color:
    """Computes the colour of the ground.

    **Arguments:**

    - `place`: x and z of the visible points.
    - `footprint`: the metres that a ray covers along its direction.
    - `width`: the metres that it covers across.
    """
    x, z = place[..., 0], place[..., 1]
    aside, along, half_width, highway = _on_road(roads, place)
    edge = aside - half_width
    coarse = octaves(x, z, footprint, (0.7, 1.9, 5.3), 3)
    fine = octaves(x, z, footprint, (0.25,), 8)
    patches = noise(along / 19.0, jnp.floor(aside / 1.9), 21) - 0.5
    asphalt = ASPHALT * (1.0 + 0.75 * coarse + 0.5 * fine + 0.7 * patches)
    asphalt = asphalt + PAINT * _marks(aside, along, half_width, highway, width)
    slabs = band(along - jnp.floor(along) - 0.5, 0.45, footprint)
    pavement = PAVEMENT * (0.8 + 0.5 * coarse + 0.2 * slabs + 0.4 * fine)
    # Highways have a narrow strip and grass instead of a pavement.
    beside = band(edge, jnp.where(highway > 0.5, 0.5, 1.8), width)
    kerb = band(edge, 0.14, width) * (1.0 - highway)
    meadow = octaves(x, z, footprint, (0.4, 1.3, 7.0), 31)
    grass = tone(GRASS) * (1.0 + 1.1 * meadow)[..., None]
    gray = pavement + kerb * (KERB - pavement)
    color = grass + beside[..., None] * (gray[..., None] - grass)
    on_road = band(jnp.maximum(edge + 10.0, 0.0), 10.0, width)
    color = color + on_road[..., None] * (asphalt[..., None] - color)
    return color * _ground_light(x, z, footprint, highway, light)[..., None]


def _on_road(roads: Roads, place: Array) -> tuple[Field, Field, Field, Field]:
    """Returns the distances from and along the nearest road, its half width, and `highway`."""
    cell = jnp.floor((place - roads.corner[None, None]) / CELL).astype(jnp.int32)
    column, row = cell[..., 0], cell[..., 1]
    inside = (column >= 0) & (column < roads.shape[1]) & (row >= 0) & (row < roads.shape[0])
    number = jnp.asarray(roads.nearest)[jnp.where(inside, row * roads.shape[1] + column, 0)]
    known = inside & (number >= 0)
    piece = jnp.asarray(roads.pieces)[jnp.where(known, number, 0)]
    gap, direction = place - piece[..., :2], piece[..., 2:4]
    along = (gap * direction).sum(-1)
    # Pieces overlap a little to close gaps on the outside of bends.
    clipped = jnp.clip(along, -1.6, 1.6)
    aside = jnp.linalg.norm(gap - clipped[..., None] * direction, axis=-1)
    aside = jnp.where(known, aside, 1e3)
    return aside, piece[..., 5] + along, piece[..., 4], piece[..., 6]


def _marks(aside: Field, along: Field, half_width: Field, highway: Field, width: Field) -> Field:
    """Returns the share of paint on the asphalt: dashes in the middle, and edges of highways."""
    seen = jnp.minimum(1.0, 0.14 / width)
    dash = band(jnp.mod(along, 7.5) - 1.9, 1.9, 4.0 * width)
    # Some streets have no marks.
    marked = jnp.where(noise(along / 130.0, jnp.zeros_like(along), 5) > 0.4, 1.0, 0.0)
    middle = band(aside, 0.09, width) * dash * jnp.maximum(marked, highway)
    edges = band(aside - half_width + 0.7, 0.09, width) * highway
    return seen * jnp.maximum(middle, edges)


def _ground_light(x: Field, z: Field, footprint: Field, highway: Field, light: Light) -> Field:
    """Returns the light on the ground with static shadows of trees and houses."""
    large = noise(x / 9.0 + z / 23.0, z / 9.0, 41) - 0.5
    leaves = octaves(x, z, footprint, (0.9, 2.3), 43)
    soft = 0.06 + 0.1 * jnp.minimum(footprint, 4.0)
    shade = jnp.clip((large + 0.3 * leaves) / soft + 0.5, 0.0, 1.0) * (1.0 - 0.85 * highway)
    return jnp.asarray(light.ambient) + light.direct * 0.75 * (1.0 - 0.95 * shade)


def objects(
    hits: Hit, nearby: Objects, winner: Int[Array, "rows columns"], height: Field, width: Field
) -> Color:
    """Computes the colour of the objects that pixels show.

    **Arguments:**

    - `winner`: the index of the object; any for pixels without one.
    - `height`: the height of the visible point, in metres.
    - `width`: the metres that a ray covers there.
    """
    columns = jnp.broadcast_to(jnp.arange(winner.shape[1])[None], winner.shape)
    table = jnp.stack([hits.along, hits.bright, hits.slant, hits.roof], -1)
    along, bright, slant, roof = jnp.moveaxis(table[winner, columns], -1, 0)
    color, salt = nearby.colors[winner][..., :3], nearby.colors[winner][..., 3]
    kind = nearby.kinds[winner]
    footprint = width / slant
    texture = octaves(along + 17.0 * salt, height, footprint, (0.35, 1.1), 51)
    leafy = (kind == HEDGE) | (kind == CROWN)
    color = color * (1.0 + jnp.where(leafy, 1.7, 0.35) * texture)[..., None]
    color = _painted(color, kind == BUILDING, _windows(along, height, footprint, salt), GLASS)
    color = _painted(color, (kind == BUILDING) & (height > roof), 0.9 + 0.3 * texture, ROOF)
    color = _painted(color, kind == CAR, _car_windows(along, height, width), GLASS)
    # Horizontal tops get more light from the sky than sides.
    top = (height > roof) & (kind != BUILDING) & (kind < COLUMN)
    return color * (bright * jnp.where(top, 1.5, 1.0))[..., None]


def _painted(color: Color, where: Array, share: Field, other: tuple[float, ...]) -> Color:
    share = jnp.where(where, share, 0.0)[..., None]
    return color + share * (tone(other) - color)


def _windows(along: Field, height: Field, footprint: Field, salt: Field) -> Field:
    pitch = STOREY * (0.8 + 0.0005 * salt)
    panes = grid_of_rectangles(along / pitch, (height - 0.3) / STOREY, 0.48, footprint / STOREY)
    return 0.9 * panes


def _car_windows(along: Field, height: Field, width: Field) -> Field:
    glass = band(height - 1.12, 0.2, width)
    # Wheels, and the shadow below a car.
    return jnp.maximum(0.9 * glass, 0.85 * band(height, 0.3, width))


def far(azimuth: Field, rise: Field, light: Light) -> Color:
    """Computes the colour of the sky, and of distant woods and hills.

    **Arguments:**

    - `azimuth`: the direction of the ray in the plane of the road, in radians.
    - `rise`: the metres that it climbs per metre.
    """
    # The noise is not periodic in the azimuth, but the seam is hardly visible.
    skyline = 0.02 + 0.07 * noise(azimuth * 9.0, jnp.zeros_like(azimuth), 61)
    skyline = skyline + 0.03 * noise(azimuth * 40.0, jnp.zeros_like(azimuth), 62)
    clouds = noise(azimuth * 5.0, rise * 14.0, 63) + 0.5 * noise(azimuth * 11.0, rise * 30.0, 64)
    blue = tone(BLUE)
    white = jnp.clip(1.5 * clouds - 0.5 - 0.4 * light.direct, 0.0, 1.0)
    white = jnp.clip(white + 0.6 - 2.5 * rise, 0.0, 1.0)[..., None]
    sky = (blue + white * (1.6 - blue)) * (0.7 + 0.5 * light.ambient)
    leaves = noise(azimuth * 55.0, rise * 55.0, 65)[..., None]
    woods = tone(WOODS) * (0.6 + 0.8 * leaves) * (light.ambient + 0.5)
    woods = woods + 0.25 * (tone(HAZE) - woods)
    covered = band(jnp.maximum(rise, 0.0), skyline, jnp.full_like(rise, 0.01))[..., None]
    return sky + covered * (woods - sky)


def hazy(color: Color, depth: Field) -> Color:
    """Blends a colour with haze by depth."""
    clear = jnp.exp(-jnp.minimum(depth, 10 * HAZE_DISTANCE) / HAZE_DISTANCE)[..., None]
    haze = tone(HAZE)
    return haze + clear * (color - haze)
