"""Sequences of states from recorded pushes, with free motion of the pusher between them."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax.tasks.pushing.contact import Friction
from filtrax.tasks.pushing.physics import half_angle_of
from filtrax.tasks.pushing.recordings.trials import Frames
from filtrax.tasks.pushing.shapes import (
    TIP_RADIUS,
    Shape,
    distance_and_normal,
    from_data_set,
    rotated,
    signed_distance,
)

FREE_STEP = 10.0
"""Length in mm of a free step of the pusher: 50 mm/s at 5 Hz."""
CLEARANCE = 5.0
"""Between the tip and the object in mm while the pusher goes around it."""
STILL = 0.1
"""Motion of an object in mm, or in degrees, that is noise of the measurement."""
REGISTRATION_ERROR = 1.0
"""Of measured tips relative to measured objects, in mm."""


@dataclasses.dataclass(frozen=True)
class PushSequence:
    """What happens to one object, frame by frame; mm and degrees.

    The control of a frame is the displacement of the pusher on the way to it, and its contact is
    that of the push that comes next.
    """

    states: np.ndarray
    """`physics.STATE` [n, 10]; the rotation is the one since the first frame."""
    controls: np.ndarray
    """[n, 2]; the first is zero."""
    poses: np.ndarray
    """Of the centre of friction in the world [n, 3], with the orientation itself."""
    tips: np.ndarray
    """[n, 2]."""
    next_tips: np.ndarray
    """Where the tip is one frame later [n, 2]."""

    def __len__(self) -> int:
        return len(self.states)


def chained(
    shape: Shape, trials: Sequence[Frames], *, free_step: float = FREE_STEP
) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n 2"]]:
    """Trials with one object, one after the other: poses of the centre of friction, and tips.

    Each trial is moved so that its object begins where the last one ended. In between, the pusher
    leaves the object, goes around it, and comes back, in steps of about `free_step` mm.
    """
    if not trials:
        raise ValueError("`trials` must hold a trial at least, got none.")
    poses, tips = [], []
    for frames in trials:
        centred = np.asarray(jax.vmap(from_data_set, (None, 0))(shape, jnp.asarray(frames.poses)))
        pushed, touched = centred, frames.tips
        if poses:
            rest = poses[-1][-1]
            pushed, touched = _moved(centred, frames.tips, rest)
            free = free_path(shape, rest, tips[-1][-1], touched[0], free_step)
            poses.append(np.broadcast_to(rest, (len(free), 3)))
            tips.append(free)
        poses.append(pushed)
        tips.append(touched)
    return np.concatenate(poses), np.concatenate(tips)


def free_path(
    shape: Shape, pose: np.ndarray, start: np.ndarray, end: np.ndarray, step: float = FREE_STEP
) -> Float[np.ndarray, "n 2"]:
    """Places of the tip on the way around an object, neither start nor end among them.

    Away from the centre to a circle about the object, along it the short way round, and back.
    """
    reach = np.hypot(*np.asarray(shape.outline).T).max() + TIP_RADIUS + CLEARANCE
    offsets = np.stack([start, end]) - pose[:2]
    first, last = np.arctan2(offsets[:, 1], offsets[:, 0])
    turn = (last - first + np.pi) % (2 * np.pi) - np.pi
    angles = first + turn * np.linspace(0, 1, 65)
    circle = pose[:2] + reach * np.stack([np.cos(angles), np.sin(angles)], -1)
    corners = np.concatenate([start[None], circle, end[None]])
    lengths = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))])
    count = max(int(np.ceil(lengths[-1] / step)), 1)
    places = lengths[-1] * np.arange(1, count) / count
    return np.stack([np.interp(places, lengths, column) for column in corners.T], -1)


def labelled(
    shape: Shape,
    poses: Float[np.ndarray, "poses 3"],
    tips: Float[np.ndarray, "tips 2"],
    friction: Friction,
    *,
    tip_radius: float = TIP_RADIUS,
) -> PushSequence:
    """States of frames, of which the last is not labelled because its next push is unknown.

    A push touches the object (s = 1) if the object moves, and the tip gets to where it was. The
    contact is then the point of the outline that is nearest to the tip before the push; otherwise
    it is the tip, and the normal is zero.
    """
    if len(poses) != len(tips) or len(poses) < 2:
        raise ValueError(
            f"There must be as many poses as tips, and two at least, got {len(poses)} and "
            f"{len(tips)}."
        )
    arrays = map(jnp.asarray, (poses[:-1], tips[:-1], tips[1:]))
    points, normals, distances = map(np.asarray, _all_nearest(shape, *arrays))
    count = len(poses) - 1
    steps = np.diff(poses, axis=0)
    moves = (np.hypot(steps[:, 0], steps[:, 1]) > STILL) | (np.abs(steps[:, 2]) > STILL)
    turned = np.unwrap(poses[:count, 2], period=360.0) - poses[0, 2]
    constant = [float(friction.length) ** 2 / 100, float(half_angle_of(friction.coefficient))]
    touches = moves & (distances < tip_radius + REGISTRATION_ERROR)
    states = np.concatenate(
        [
            poses[:count, :2],
            turned[:, None],
            np.broadcast_to(constant, (count, 2)),
            np.where(touches[:, None], points, tips[:count]),
            np.where(touches[:, None], normals, 0.0),
            touches[:, None].astype(float),
        ],
        1,
    )
    controls = np.diff(tips[:count], axis=0, prepend=tips[:1])
    return PushSequence(states, controls, poses[:count], tips[:count], tips[1:])


def _nearest(shape: Shape, pose: Array, tip: Array, next_tip: Array) -> tuple[Array, Array, Array]:
    """The nearest point of the outline, its inward normal, and how near the tip will be."""
    middle, after = (rotated(place - pose[:2], -pose[2]) for place in (tip, next_tip))
    distance, inward = distance_and_normal(shape, middle)
    point = middle + distance * inward
    nearest = rotated(point, pose[2]) + pose[:2]
    return nearest, rotated(inward, pose[2]), signed_distance(shape, after)


_all_nearest = jax.jit(jax.vmap(_nearest, (None, 0, 0, 0)))


def _moved(poses: np.ndarray, tips: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Poses and tips after the rigid motion that takes the first pose to another one."""
    turn = rest[2] - poses[0, 2]
    cosine, sine = np.cos(np.deg2rad(turn)), np.sin(np.deg2rad(turn))
    matrix = np.asarray([[cosine, -sine], [sine, cosine]])

    def moved(points: np.ndarray) -> np.ndarray:
        return (points - poses[0, :2]) @ matrix.T + rest[:2]

    return np.column_stack([moved(poses[:, :2]), poses[:, 2] + turn]), moved(tips)
