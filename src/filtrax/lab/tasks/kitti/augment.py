"""Data augmentation of training windows.

Images are not copied: a `Distortion` with a few numbers for each frame is added to the context of a
trajectory, and the sensor applies it to the two frames that it reads. States are changed
consistently. A camera that additionally turns by φ(t) sees

    θ'(t) = θ(t) + φ(t),   θ̇' = θ̇ + Δφ/Δt,   p'(t+1) = p'(t) + R(φ(t)) (p(t+1) - p(t)),

with unchanged speeds. φ is a slow sway A sin(2π t/T + ψ) minus its mean over the frames, which adds
heading rates that the drive lacks with angles of the order of A.

A turned camera is at the same place, so its image is a warp of the recorded one for any depths.
With the tangents a to the right and s downwards, it is

    a = (a' cos φ - sin φ)/(cos φ + a' sin φ),   s = s'/(cos φ + a' sin φ) - pitch.
"""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from filtrax._types import Key
from filtrax.lab.tasks.kitti.camera import Intrinsics
from filtrax.lab.tasks.kitti.motion import Velocities
from filtrax.training.protocols import AbstractAugmentation
from filtrax.trajectory import Trajectory

DEGREE = math.pi / 180

PERIOD_SPREAD = 2.0
"""Periods of a sway are drawn between `sway_period` divided and multiplied by this factor."""

States = Float[Array, "n 5"]


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """The strength of augmentation; 0 (default) disables each kind.

    Unless stated otherwise, numbers are standard deviations of random draws for each sub-sequence.

    - `mirror`: the probability of mirroring a sub-sequence about the centre of the lens. (The task
      mirrors windows about the middle of the image, which is slightly different.)
    - `gain`, `flicker`: changes of log brightness for each sub-sequence, and for each frame.
    - `bias`: offset of the brightness, in gray levels (of 255).
    - `noise`: noise of each pixel, in gray levels.
    - `sway`: amplitude of additional turns of the camera to the left and right, in degrees.
    - `sway_period`: typical period of these turns in seconds; drawn between half and twice of it.
    - `yaw`, `pitch`: mounting angles of the camera, in degrees.
    - `nod`: pitch of each frame, in degrees.
    - `turn`: largest angle of a rotation of the whole sub-sequence, in degrees, drawn uniformly. It
      changes no images, because they do not show where north is; so networks need not learn that
      they should ignore it.
    """

    mirror: float = 0.0
    gain: float = 0.0
    flicker: float = 0.0
    bias: float = 0.0
    noise: float = 0.0
    sway: float = 0.0
    sway_period: float = 2.0
    yaw: float = 0.0
    pitch: float = 0.0
    nod: float = 0.0
    turn: float = 0.0

    def __post_init__(self):
        numbers = dataclasses.asdict(self)
        negative = [name for name, number in numbers.items() if not 0 <= number < math.inf]
        if self.mirror > 1:
            raise ValueError(f"augmentation.mirror must be at most 1, got {self.mirror}.")
        if negative or self.sway_period == 0:
            name = negative[0] if negative else "sway_period"
            least = "positive" if name == "sway_period" else "at least 0"
            raise ValueError(f"augmentation.{name} must be {least}, got {numbers[name]}.")

    @property
    def changes_anything(self) -> bool:
        """True if any augmentation is enabled."""
        return self.changes_images or self.turn > 0

    @property
    def changes_images(self) -> bool:
        """True if images are changed, differently in each epoch."""
        return self != Augmentation(sway_period=self.sway_period, turn=self.turn)


class Distortion(eqx.Module):
    """The distortion of the n frames of a sub-sequence, whose first frame has the index `first`.

    **Attributes:**

    - `gain`, `bias`: factor and offset of the brightness.
    - `yaw`: the turn of the camera to the left, in radians.
    - `pitch`: the turn of the camera upwards, in radians.
    - `mirrored`: True if the image is flipped later; it is shifted first, so that the flip mirrors
      it about the centre of the lens.
    - `noise`: the standard deviation of the noise of pixels.
    - `key`: the key of the noise, which is equal whenever the same frame is read.
    """

    first: Int[Array, ""]
    gain: Float[Array, " n"]
    bias: Float[Array, " n"]
    yaw: Float[Array, " n"]
    pitch: Float[Array, " n"]
    mirrored: Bool[Array, ""]
    noise: Float[Array, ""]
    key: Key

    def __call__(
        self, image: Float[Array, "h w c"], number: Int[Array, ""]
    ) -> Float[Array, "h w c"]:
        """Distorts the image of a frame, given by its index in the window."""
        i = number - self.first
        gain, bias, yaw, pitch, level = (
            jnp.asarray(part, image.dtype)
            for part in (self.gain[i], self.bias[i], self.yaw[i], self.pitch[i], self.noise)
        )
        image = jnp.where(self.mirrored, _moved_for_mirror(image), image)
        noise = level * jr.normal(jr.fold_in(self.key, number), image.shape, image.dtype)
        return jnp.clip(gain * turned(image, yaw, pitch) + bias + noise, 0.0, 255.0)


def turned(
    image: Float[Array, "h w c"], yaw: Float[Array, ""], pitch: Float[Array, ""]
) -> Float[Array, "h w c"]:
    """Warps an image to that of a camera turned to the left and up, by angles in radians.

    Brightness is interpolated linearly; pixels at the edge are repeated beyond it.
    """
    height, width, _ = image.shape
    lens = Intrinsics.resized((height, width))
    across = (jnp.arange(width, dtype=image.dtype) - lens.centre_x) / lens.focal_x
    falling = (jnp.arange(height, dtype=image.dtype) - lens.centre_y) / lens.focal_y
    ahead = jnp.cos(yaw) + across * jnp.sin(yaw)
    columns = (across * jnp.cos(yaw) - jnp.sin(yaw)) / ahead * lens.focal_x + lens.centre_x
    rows = (falling[:, None] / ahead[None, :] - pitch) * lens.focal_y + lens.centre_y
    return _between_pixels(image, rows, jnp.broadcast_to(columns[None, :], rows.shape))


def _moved_for_mirror(image: Float[Array, "h w c"]) -> Float[Array, "h w c"]:
    """Shifts an image such that a flip mirrors it about the centre of the lens."""
    height, width, _ = image.shape
    lens = Intrinsics.resized((height, width))
    columns = jnp.arange(width, dtype=image.dtype) + (2 * lens.centre_x - (width - 1))
    rows = jnp.arange(height, dtype=image.dtype)
    shape = (height, width)
    return _between_pixels(
        image, jnp.broadcast_to(rows[:, None], shape), jnp.broadcast_to(columns[None, :], shape)
    )


def _between_pixels(
    image: Float[Array, "h w c"], rows: Float[Array, "h w"], columns: Float[Array, "h w"]
) -> Float[Array, "h w c"]:
    height, width, _ = image.shape
    rows, columns = jnp.clip(rows, 0.0, height - 1.0), jnp.clip(columns, 0.0, width - 1.0)
    top, left = jnp.floor(rows).astype(int), jnp.floor(columns).astype(int)
    below, beside = jnp.minimum(top + 1, height - 1), jnp.minimum(left + 1, width - 1)
    down = (rows - top.astype(rows.dtype))[:, :, None]
    right = (columns - left.astype(rows.dtype))[:, :, None]
    upper = image[top, left] * (1 - right) + image[top, beside] * right
    lower = image[below, left] * (1 - right) + image[below, beside] * right
    return upper * (1 - down) + lower * down


@dataclasses.dataclass(frozen=True)
class Augment(AbstractAugmentation):
    """Draws the distortion of a sub-sequence, and changes its states consistently."""

    settings: Augmentation
    velocities: Velocities

    @property
    def keeps_readings(self) -> bool:
        """True if images are not changed, so that features can be computed once."""
        return not self.settings.changes_images

    def __call__(self, trajectory: Trajectory, key: Key) -> Trajectory:
        if self.settings.changes_images:
            trajectory = self._with_other_images(trajectory, key)
        if self.settings.turn > 0:
            trajectory = self._turned(trajectory, jr.fold_in(key, 0))
        return trajectory

    def _turned(self, trajectory: Trajectory, key: Key) -> Trajectory:
        """Rotates the sub-sequence by a random angle; x and y have equal initial variances."""
        states = _all_states(trajectory)
        angle = self.settings.turn * jr.uniform(key, (), states.dtype, -1.0, 1.0)
        zero = jnp.zeros(len(states), states.dtype)
        return _with_states(trajectory, turned_states(states, zero + angle, zero))

    def _with_other_images(self, trajectory: Trajectory, key: Key) -> Trajectory:
        mirror_key, yaw_key, light_key, noise_key = jr.split(key, 4)
        yaw, rates = self._yaw(trajectory.inputs[:, 0], key=yaw_key)
        states = _all_states(trajectory)
        mirror = jr.bernoulli(mirror_key, self.settings.mirror)
        signs = jnp.asarray([1.0, -1.0, -1.0, 1.0, -1.0], states.dtype)
        states = jnp.where(mirror, states * signs[None, :], states)
        states = turned_states(states, yaw, rates)
        mirrored = jnp.logical_xor(trajectory.context["mirrored"], mirror)
        first = trajectory.readings[0]
        distortion = self._distortion(first, mirrored, yaw, light_key, noise_key)
        context = trajectory.context | {"mirrored": mirrored, "distortion": distortion}
        return _with_states(dataclasses.replace(trajectory, context=context), states)

    def _yaw(
        self, steps: Float[Array, " t"], *, key: Key
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Draws additional headings of all frames in degrees, and rates in degrees per second.

        Rates belong to the same motion as the frame's velocities, "forward" or "aligned".
        """
        settings, dtype = self.settings, steps.dtype
        phase_key, period_key, *keys = jr.split(key, 4)
        turn = 2 * math.pi
        phase = jr.uniform(phase_key, (), dtype, 0.0, turn)
        spread = jr.uniform(period_key, (), dtype, -1.0, 1.0) * math.log(PERIOD_SPREAD)
        period = settings.sway_period * jnp.exp(spread)
        amplitude, mount = (jr.normal(k, (), dtype) for k in keys)
        # Add one step before the first frame and one after the last: their velocities may belong
        # to motions outside of the window.
        durations = jnp.concatenate([steps[:1], steps, steps[-1:]])
        times = jnp.cumsum(durations)
        times = jnp.concatenate([jnp.zeros(1, dtype), times])
        sway = settings.sway * amplitude * jnp.sin(turn * times / period + phase)
        rates = jnp.diff(sway) / durations
        rates = rates[1:] if self.velocities == "forward" else rates[:-1]
        angles = sway[1:-1]
        return angles - angles.mean() + settings.yaw * mount, rates

    def _distortion(
        self,
        first: Int[Array, ""],
        mirrored: Bool[Array, ""],
        yaw: Float[Array, " n"],
        light_key: Key,
        noise_key: Key,
    ) -> Distortion:
        settings, dtype, shape = self.settings, yaw.dtype, yaw.shape
        keys = iter(jr.split(light_key, 5))
        whole = lambda std: std * jr.normal(next(keys), (), dtype)  # noqa: E731
        each = lambda std: std * jr.normal(next(keys), shape, dtype)  # noqa: E731
        return Distortion(
            first=first,
            gain=jnp.exp(whole(settings.gain) + each(settings.flicker)),
            bias=jnp.broadcast_to(whole(settings.bias), shape),
            # Frames are distorted before they are mirrored.
            yaw=jnp.where(mirrored, -yaw, yaw) * DEGREE,
            pitch=(whole(settings.pitch) + each(settings.nod)) * DEGREE,
            mirrored=mirrored,
            noise=jnp.asarray(settings.noise, dtype),
            key=noise_key,
        )


def _all_states(trajectory: Trajectory) -> States:
    return jnp.concatenate([trajectory.initial[None], trajectory.known_states()[0]])


def _with_states(trajectory: Trajectory, states: States) -> Trajectory:
    return dataclasses.replace(trajectory, initial=states[0], states=states[1:])


def turned_states(states: States, yaw: Float[Array, " n"], rates: Float[Array, " n"]) -> States:
    """Adds turns to the left to the states of a car, by angles and rates in degrees.

    The distance of each step is unchanged, and its direction turns by the angle.
    """
    angles = yaw[:-1] * DEGREE
    along, aside = jnp.diff(states[:, 0]), jnp.diff(states[:, 1])
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    moved = jnp.stack([cosine * along - sine * aside, sine * along + cosine * aside], 1)
    position = jnp.concatenate([states[:1, :2], states[:1, :2] + jnp.cumsum(moved, 0)])
    heading = jnp.mod(states[:, 2] + yaw + 180.0, 360.0) - 180.0
    rest = jnp.stack([heading, states[:, 3], states[:, 4] + rates], 1)
    return jnp.concatenate([position, rest], 1)
