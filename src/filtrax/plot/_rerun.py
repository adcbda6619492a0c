"""Recordings for the viewer of Rerun."""

import dataclasses
import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from filtrax._checks import check_shape
from filtrax._files import write_whole
from filtrax.beliefs import AbstractBelief
from filtrax.plot._axes import check_probability, numbers_of, pair_of
from filtrax.plot._moments import ellipse_scale, ellipses, known, moments_of, period_of
from filtrax.spaces import AbstractSpace

COLOURS = {"estimate": (86, 180, 233), "truth": (255, 255, 255)}
"""Colours on the dark ground of the viewer."""
CORNERS = 48
"""The corners of a polygon that stands for an ellipse."""


def to_rerun(
    path: str | Path,
    beliefs: AbstractBelief,
    space: AbstractSpace,
    *,
    components: Sequence[str] | None = None,
    heading: str | None = None,
    states: Any = None,
    labelled: Any = None,
    images: Any = None,
    times: Any = None,
    probability: float = 0.95,
) -> None:
    """Writes a track as a recording `.rrd`, for the viewer of Rerun (`rerun PATH`).

    It holds `path`, `pose` and `heading` of `estimate` and of `truth`, `estimate/ellipse` and
    `image`, on the timelines `step` and `time`. The plane of the track is z = 0. It needs
    `pip install "filtrax[rerun]"`.

    **Arguments:**

    - `path`: the file. It is complete or not there.
    - `beliefs`: those of one sequence, of any kind.
    - `components`: the names of the two components of the position; the first two by default.
    - `heading`: the name of the angle, from the first axis to the second, at which poses look.
    - `states`, `labelled`: the true states, and which of them are known.
    - `images`: one for each step, of shape [T, H, W] or [T, H, W, 3]: integers up to 255, or
      numbers from 0 to 1.
    - `times`: of each step, in seconds.
    - `probability`: of the ellipses.
    """
    rerun = _imported()
    check_probability(probability)
    moments = moments_of(beliefs, space)
    count, size = moments.mean.shape
    pair = pair_of(components, space, size)
    series = {"estimate": moments.mean}
    if states is not None:
        series["truth"] = known(states, labelled, moments.mean.shape)
    if times is not None:
        check_shape("times", times, (count,))
    scene = _Scene(
        poses={name: _poses(values, pair, heading, space) for name, values in series.items()},
        outlines=[
            outline(mean, covariance, probability)
            for mean, covariance in zip(
                moments.mean[:, pair], moments.covariance[:, pair][:, :, pair], strict=True
            )
        ],
        images=None if images is None else _bytes(images, count),
        times=None if times is None else np.asarray(times, float),
    )
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "draft.rrd")
        _record(rerun, draft, scene)
        with draft.open("rb") as source:
            write_whole(Path(path), lambda file: shutil.copyfileobj(source, file))


@dataclasses.dataclass(frozen=True)
class _Scene:
    """All that a recording shows: rows of poses are x, y and the heading in radians."""

    poses: dict[str, Float[np.ndarray, "t 3"]]
    outlines: list[Float[np.ndarray, "n 2"]]
    images: Shaped[np.ndarray, "t h w *c"] | None
    times: Float[np.ndarray, " t"] | None


def _imported() -> Any:
    """The package `rerun`, or an error that says how to install it."""
    try:
        import rerun
    except ImportError as error:
        raise ImportError(
            "`to_rerun` needs the package `rerun-sdk`, which is not installed: install it by "
            '`pip install "filtrax[rerun]"`.'
        ) from error
    return rerun


def _poses(
    values: Float[np.ndarray, "t x"],
    pair: tuple[int, int],
    heading: str | None,
    space: AbstractSpace,
) -> Float[np.ndarray, "t 3"]:
    """Rows of x, y and the heading in radians, not a number where there is none."""
    if heading is None:
        return np.pad(values[:, pair], ((0, 0), (0, 1)), constant_values=np.nan)
    (number,) = numbers_of((heading,), space, values.shape[1])
    period = period_of(space, number)
    scale = 1.0 if period is None else 2 * math.pi / period
    return np.concatenate([values[:, pair], scale * values[:, number, None]], -1)


def _bytes(images: Any, count: int) -> Shaped[np.ndarray, "t h w *c"]:
    """Images as bytes, or an error that says which shape and values they must have."""
    pictures = np.asarray(images)
    if (
        pictures.ndim not in (3, 4)
        or len(pictures) != count
        or pictures.shape[3:] not in ((), (3,))
    ):
        raise ValueError(
            f"`images` must have shape [{count}, H, W] or [{count}, H, W, 3], one for each step, "
            f"got {pictures.shape}."
        )
    if pictures.dtype == np.uint8:
        return pictures
    top = 1.0 if np.issubdtype(pictures.dtype, np.floating) else 255
    if not ((pictures >= 0) & (pictures <= top)).all():
        raise ValueError(
            f"`images` must lie between 0 and {top}, got {pictures.min()} to {pictures.max()}."
        )
    return np.round(pictures * (255 / top)).astype(np.uint8)


def _record(rerun: Any, path: Path, scene: _Scene) -> None:
    """Writes a recording, step by step."""
    stream = rerun.RecordingStream("filtrax")
    stream.save(path)
    stream.log("/", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    length = _arrow_length(scene.poses["estimate"][:, :2])
    for name, poses in scene.poses.items():
        _log_path(rerun, stream, name, poses[:, :2])
    for t, corners in enumerate(scene.outlines):
        stream.set_time("step", sequence=t)
        if scene.times is not None:
            stream.set_time("time", duration=float(scene.times[t]))
        for name, poses in scene.poses.items():
            _log_pose(rerun, stream, name, poses[t], length)
        line = [_lift(corners)] if np.isfinite(corners).all() else []
        lines = rerun.LineStrips3D(line, colors=[COLOURS["estimate"]])
        stream.log("estimate/ellipse", lines)
        if scene.images is not None:
            stream.log("image", rerun.Image(scene.images[t]))
    stream.disconnect()  # completes the file


def _log_path(rerun: Any, stream: Any, name: str, points: Float[np.ndarray, "t 2"]) -> None:
    """The whole way, at all times; broken where a point is not known."""
    finite = np.isfinite(points).all(-1)
    ends = np.flatnonzero(np.diff(finite.astype(int))) + 1
    parts = [part for part in np.split(_lift(points), ends) if np.isfinite(part).all()]
    lines = rerun.LineStrips3D([part for part in parts if len(part) > 1], colors=[COLOURS[name]])
    stream.log(f"{name}/path", lines, static=True)


def _arrow_length(points: Float[np.ndarray, "t 2"]) -> float:
    """A twentieth of the size of a track, whatever its unit."""
    points = points[np.isfinite(points).all(-1)]
    return float(np.ptp(points, 0).max()) / 20 if len(points) > 1 else 1.0


def _log_pose(
    rerun: Any, stream: Any, name: str, pose: Float[np.ndarray, "3"], length: float
) -> None:
    """The pose of a step: a point, with an arrow where there is a heading."""
    known_place = bool(np.isfinite(pose[:2]).all())
    place = _lift(pose[None, :2])[: int(known_place)]
    points = rerun.Points3D(place, colors=[COLOURS[name]], radii=rerun.Radius.ui_points([4.0]))
    stream.log(f"{name}/pose", points)
    ahead = length * np.array([[math.cos(pose[2]), math.sin(pose[2]), 0.0]])
    count = int(known_place and math.isfinite(pose[2]))
    arrow = rerun.Arrows3D(origins=place[:count], vectors=ahead[:count], colors=[COLOURS[name]])
    stream.log(f"{name}/heading", arrow)


def outline(
    mean: Float[np.ndarray, "2"], covariance: Float[np.ndarray, "2 2"], probability: float
) -> Float[np.ndarray, "n 2"]:
    """The closed polygon of an ellipse that holds a probability."""
    major, minor, angle = ellipses(covariance, ellipse_scale(probability))
    round_ = np.linspace(0, 2 * np.pi, CORNERS + 1)
    points = np.stack([major * np.cos(round_), minor * np.sin(round_)], -1)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return mean + points @ turn.T


def _lift(points: Float[np.ndarray, "t 2"]) -> Float[np.ndarray, "t 3"]:
    """Points of the plane z = 0."""
    return np.pad(points, ((0, 0), (0, 1)))
