"""Windows: sequences of equal length, cut from drives, and their splits.

A window of T steps has T + 1 frames. Its initial state is that of the first frame. The reading of
step t is the index t, which stands for the images t and t + 1 of the window.
"""

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from filtrax._checks import check_known
from filtrax.lab.tasks.kitti import motion
from filtrax.lab.tasks.kitti.recordings.drives import Drive
from filtrax.trajectory import Trajectory

INITIAL_COVARIANCE = np.diag([0.01, 0.01, 0.01, 25.0, 25.0])
"""The covariance of the initial belief: the pose is known, the velocities are not."""

VALIDATION_PART = 7
"""One out of this many windows of the training drives is for validation, as in the paper."""

Reader = Callable[[str], Drive]
"""Returns a drive by its name."""


class Track(NamedTuple):
    """A drive and the states along it."""

    drive: Drive
    states: Float[np.ndarray, "n 5"]

    @property
    def known(self) -> range:
        """The frames with known velocities."""
        frames = np.flatnonzero(np.isfinite(self.states).all(-1))
        return range(int(frames[0]), int(frames[-1]) + 1) if frames.size else range(0)


class Window(NamedTuple):
    """A part of a drive, seen by one camera, possibly mirrored; `start` is its first frame."""

    track: Track
    camera: str
    mirrored: bool
    start: int


@dataclasses.dataclass(frozen=True)
class Cutting:
    """The settings for cutting windows from drives.

    - `num_steps`: the number of steps of a window.
    - `velocities`: as in `filtrax.lab.tasks.kitti.motion`.
    - `per_variant`: the number of random windows for each camera, and each mirrored camera.
    - `stride`: the number of frames between the starts of regular windows.
    - `most`: the largest number of regular windows for each camera, and each mirrored camera.
    - `seed`: the seed of random windows, which depend on seed, drive and camera only.
    """

    num_steps: int
    velocities: motion.Velocities
    per_variant: int
    stride: int
    most: int
    seed: int

    def drawn(self, drive: Drive, *, mirrored: bool) -> Iterator[Window]:
        """Yields windows with distinct random starts, drawn separately for each variant."""
        track, starts = self._track(drive)
        for number, (camera, flipped) in enumerate(_variants(drive, mirrored)):
            generator = np.random.default_rng([self.seed, zlib.crc32(drive.name.encode()), number])
            count = min(self.per_variant, len(starts))
            for start in np.sort(generator.choice(len(starts), count, replace=False)):
                yield Window(track, camera, flipped, starts[int(start)])

    def regular(self, drive: Drive, *, mirrored: bool) -> Iterator[Window]:
        """Yields windows at regular distances; if there are more than `most`, an even selection."""
        track, starts = self._track(drive)
        starts = starts[:: self.stride]
        chosen = np.linspace(0, len(starts) - 1, min(len(starts), self.most)).round().astype(int)
        for camera, flipped in _variants(drive, mirrored):
            for number in chosen:
                yield Window(track, camera, flipped, starts[int(number)])

    def _track(self, drive: Drive) -> tuple[Track, range]:
        """Returns the states of a drive, and the possible starts of windows."""
        track = Track(drive, motion.states(drive.poses, drive.times, self.velocities))
        starts = track.known[: max(len(track.known) - self.num_steps, 0)]
        if not starts:
            raise ValueError(
                f"A drive must have at least {self.num_steps + 2} frames for windows of "
                f"{self.num_steps} steps (task.num_steps), but drive {drive.name} has "
                f"{drive.num_frames} here."
            )
        return track, starts


def _variants(drive: Drive, mirrored: bool) -> list[tuple[str, bool]]:
    return [(camera, flip) for camera in drive.cameras for flip in ((False, True)[: 1 + mirrored])]


@dataclasses.dataclass(frozen=True)
class Fold:
    """A fold of the paper's cross-validation: test on one drive, train on all others.

    Validation windows are drawn from the training drives, too, and may overlap training windows,
    as in the paper.

    - `test`: the name of the drive to test on.
    """

    kind: ClassVar[str] = "fold"
    test: str = "00"

    def windows(
        self, split: str, names: Sequence[str], read: Reader, cutting: Cutting, *, mirrored: bool
    ) -> list[Window]:
        """Returns the windows of a split, cut from the named drives."""
        check_known("`split.test` must name a drive", {self.test} - {*names}, list(names))
        if split == "test":
            return [*cutting.regular(read(self.test), mirrored=mirrored)]
        others = [name for name in names if name != self.test]
        if not others:
            raise ValueError(
                f"A fold must have a drive to train on besides drive {self.test}, but there is no "
                'other: cut this one in time, with split.kind = "frames".'
            )
        drawn = [w for name in others for w in cutting.drawn(read(name), mirrored=mirrored)]
        order = np.random.default_rng([cutting.seed, len(drawn)]).permutation(len(drawn))
        count = math.ceil(len(drawn) / VALIDATION_PART)
        chosen = order[:count] if split == "validation" else order[count:]
        return [drawn[number] for number in np.sort(chosen)]


@dataclasses.dataclass(frozen=True)
class Frames:
    """One drive cut in time, so that no frame is in two splits.

    Each split is a range of frames [first, stop).

    - `sequence`: the name of the drive.
    - `train`, `validation`, `test`: the range of frames of each split.
    """

    kind: ClassVar[str] = "frames"
    sequence: str = "00"
    train: tuple[int, int] = (0, 2600)
    validation: tuple[int, int] = (2600, 3000)
    test: tuple[int, int] = (3000, 3500)

    def __post_init__(self):
        parts = sorted([self.train, self.validation, self.test])
        ends = [frame for part in parts for frame in part]
        if ends[0] < 0 or any(first >= stop for first, stop in parts) or ends != sorted(ends):
            raise ValueError(
                "train, validation and test must be frames [first, stop] of a drive that do not "
                f"overlap: got {self.train}, {self.validation} and {self.test}."
            )

    def windows(
        self, split: str, names: Sequence[str], read: Reader, cutting: Cutting, *, mirrored: bool
    ) -> list[Window]:
        """Returns the windows of a split, cut from the named drive."""
        unknown = {self.sequence} - {*names}
        check_known("`split.sequence` must name a drive", unknown, list(names))
        part = read(self.sequence).frames(*getattr(self, split))
        cut = cutting.drawn if split == "train" else cutting.regular
        return [*cut(part, mirrored=mirrored)]


@dataclasses.dataclass(frozen=True)
class Part:
    """Frames of one drive, to test models that were trained on other data.

    - `sequence`: the name of the drive.
    - `frames`: the range of frames [first, stop).
    """

    kind: ClassVar[str] = "part"
    sequence: str = "00"
    frames: tuple[int, int] = (0, 100)

    def windows(
        self, split: str, names: Sequence[str], read: Reader, cutting: Cutting, *, mirrored: bool
    ) -> list[Window]:
        """Returns the test windows; raises for other splits."""
        if split != "test":
            raise ValueError(
                f"A part of a drive is for the test alone, but {split} was asked for: train with "
                'split.kind = "frames" or "fold".'
            )
        unknown = {self.sequence} - {*names}
        check_known("`split.sequence` must name a drive", unknown, list(names))
        part = read(self.sequence).frames(*self.frames)
        return [*cutting.regular(part, mirrored=mirrored)]


def trajectories(windows: Sequence[Window], num_steps: int) -> Trajectory:
    """Makes trajectories of windows, and copies their images."""
    shape = _image_shape(windows)
    count = len(windows)
    frames = np.empty((count, num_steps + 1, *shape), np.uint8)
    states = np.empty((count, num_steps + 1, 5))
    steps = np.empty((count, num_steps, 1))
    for number, (track, camera, mirrored, start) in enumerate(windows):
        part = slice(start, start + num_steps + 1)
        frames[number] = track.drive.cameras[camera][part]
        states[number] = motion.mirrored(track.states[part]) if mirrored else track.states[part]
        steps[number, :, 0] = np.diff(track.drive.times[part])
    return Trajectory(
        initial=states[:, 0],
        initial_covariance=np.tile(INITIAL_COVARIANCE, (count, 1, 1)),
        readings=jnp.tile(jnp.arange(num_steps), (count, 1)),
        inputs=jnp.asarray(steps),
        states=jnp.asarray(states[:, 1:]),
        # Keep images on the host until a program needs them, to avoid copies on the device.
        context={"frames": frames, "mirrored": np.asarray([w.mirrored for w in windows])},
    )


def _image_shape(windows: Sequence[Window]) -> tuple[int, ...]:
    shapes = {w.track.drive.name: w.track.drive.cameras[w.camera].shape[1:] for w in windows}
    if len({*shapes.values()}) > 1:
        raise ValueError(
            f"The images of all drives must have the same height, width and channels, got {shapes}."
            " Choose drives, or task.cameras, that are alike."
        )
    return next(iter(shapes.values()))
