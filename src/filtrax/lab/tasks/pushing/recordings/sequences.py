"""Makes sequences of recorded pushes, with free motion of the pusher between them."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from filtrax.lab.tasks.pushing.contact import Friction, nearest
from filtrax.lab.tasks.pushing.physics import half_angle_of
from filtrax.lab.tasks.pushing.recordings.trials import Frames
from filtrax.lab.tasks.pushing.sequences import Sequences
from filtrax.lab.tasks.pushing.shapes import NAMES, TIP_RADIUS, Shape, from_data_set, shape
from filtrax.lab.tasks.pushing.simulator import FREE_LENGTH
from filtrax.lab.tasks.pushing.ways import way_around

STILL = 0.1
"""The largest motion of an object, in mm or degrees, that counts as measurement noise."""
REGISTRATION_ERROR = 1.0
"""The assumed error of measured tips relative to measured objects, in mm."""


class Chain(NamedTuple):
    """Poses of object and pusher for each frame, in mm and degrees."""

    poses: Float[np.ndarray, "n 3"]
    """Poses of the centre of friction, with absolute orientations."""
    tips: Float[np.ndarray, "n 2"]
    pushes: Bool[np.ndarray, " n"]
    """True for frames whose next step was recorded as part of a push."""


def recorded(name: str, trials: Sequence[Frames], friction: Friction) -> Sequences:
    """Makes one sequence of trials with an object, centred at the origin."""
    chain = chained(shape(name), trials)
    positions = chain.poses[:, :2]
    middle = (positions.min(0) + positions.max(0)) / 2
    poses = np.column_stack([positions - middle, chain.poses[:, 2]])
    return labelled(name, chain._replace(poses=poses, tips=chain.tips - middle), friction)


def chained(shape: Shape, trials: Sequence[Frames], *, free_length: float = FREE_LENGTH) -> Chain:
    """Joins trials with one object.

    Each trial is moved such that its object starts at the end of the previous trial. Between
    trials, the pusher moves around the object in steps of at most `free_length` mm.
    """
    if not trials:
        raise ValueError("`trials` must hold a trial at least, got none.")
    parts: list[Chain] = []
    for frames in trials:
        poses = np.asarray(jax.vmap(from_data_set, (None, 0))(shape, jnp.asarray(frames.poses)))
        tips = frames.tips
        if parts:
            rest = parts[-1].poses[-1]
            poses, tips = _moved(poses, tips, rest)
            free = free_path(shape, rest, parts[-1].tips[-1], tips[0], free_length)
            still = np.broadcast_to(rest, (len(free), 3))
            parts.append(Chain(still, free, np.zeros(len(free), bool)))
        parts.append(Chain(poses, tips, np.arange(len(tips)) < len(tips) - 1))
    return Chain(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def free_path(
    shape: Shape, pose: np.ndarray, start: np.ndarray, end: np.ndarray, longest: float
) -> Float[np.ndarray, "n 2"]:
    """Returns positions of the tip on a way around an object, without start and end."""
    middle, first, last = (jnp.asarray(place) for place in (pose[:2], start, end))
    way = way_around(shape, middle, first, last, longest)
    return np.asarray(jax.vmap(way.place)(jnp.arange(1, int(way.num_steps))))


def labelled(
    name: str, chain: Chain, friction: Friction, *, tip_radius: float = TIP_RADIUS
) -> Sequences:
    """Labels one sequence; the last frame is dropped, because its next step is unknown.

    A step has contact if the object moves and the tip reaches its previous outline. The contact
    point is then the point of the outline nearest to the tip before the step; otherwise it is the
    tip, and the normal is zero.
    """
    poses, tips = chain.poses, chain.tips
    if len(poses) != len(tips) or len(poses) < 2:
        raise ValueError(
            f"There must be as many poses as tips, and two at least, got {len(poses)} and "
            f"{len(tips)}."
        )
    arrays = map(jnp.asarray, (poses[:-1], tips[:-1], tips[1:]))
    points, normals, distances = map(np.asarray, _all_nearest(shape(name), *arrays))
    turned = np.column_stack([poses[:, :2], np.unwrap(poses[:, 2], period=360.0)])
    steps = np.diff(turned, axis=0)
    moves = (np.hypot(steps[:, 0], steps[:, 1]) > STILL) | (np.abs(steps[:, 2]) > STILL)
    touches = moves & (distances < tip_radius + REGISTRATION_ERROR)
    arrays = {
        "poses": turned[:-1],
        "tips": tips,
        "points": np.where(touches[:, None], points, tips[:-1]),
        "normals": np.where(touches[:, None], normals, 0.0),
    }
    return Sequences(
        shape=jnp.asarray([NAMES.index(name)]),
        friction=friction.length[None] ** 2 / 100,
        half_angle=half_angle_of(friction.coefficient)[None],
        touches=jnp.asarray(touches)[None],
        pushes=jnp.asarray(chain.pushes[:-1])[None],
        **{name: jnp.asarray(array, float)[None] for name, array in arrays.items()},
    )


def _nearest(shape: Shape, pose: Array, tip: Array, next_tip: Array) -> tuple[Array, Array, Array]:
    """Returns the nearest point of the outline, its normal, and the distance of the next tip."""
    _, point, normal = nearest(shape, pose, tip)
    return point, normal, nearest(shape, pose, next_tip).distance


_all_nearest = jax.jit(jax.vmap(_nearest, (None, 0, 0, 0)))


def _moved(poses: np.ndarray, tips: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moves poses and tips rigidly, such that the first pose becomes `rest`."""
    turn = rest[2] - poses[0, 2]
    cosine, sine = np.cos(np.deg2rad(turn)), np.sin(np.deg2rad(turn))
    matrix = np.asarray([[cosine, -sine], [sine, cosine]])

    def moved(points: np.ndarray) -> np.ndarray:
        return (points - poses[0, :2]) @ matrix.T + rest[:2]

    return np.column_stack([moved(poses[:, :2]), poses[:, 2] + turn]), moved(tips)
