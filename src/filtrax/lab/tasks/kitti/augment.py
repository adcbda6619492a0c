"""Training windows that were not recorded, made from those that were.

Images are never copied: what is drawn are a few numbers for each frame (`Distortion`), which travel
in the context of a trajectory, and the sensor applies them to the two frames that it reads. States
change with the images. A camera that also turns by φ(t) sees

    θ'(t) = θ(t) + φ(t),   θ̇' = θ̇ + Δφ/Δt,   p'(t+1) = p'(t) + R(φ(t)) (p(t+1) - p(t)),

and speeds are kept. φ is a slow sway, A sin(2π t/T + ψ), less its mean over the frames. So the
angles stay as small as A, while many heading rates are seen that the drive does not have.

That a turning camera sees the same scene from the same place makes its image a warp of the recorded
one, whatever the depths are. With a and s, the tangents to the right and downwards,

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
from filtrax.trajectory import Trajectory

DEGREE = math.pi / 180

PERIOD_SPREAD = 2.0
"""Periods of a sway are drawn between the stated one divided by this and multiplied by it."""

States = Float[Array, "n 5"]


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """How strongly training windows are changed; 0 is not at all, and all are 0 by default.

    Numbers are standard deviations of what is drawn for each sub-sequence, or for each frame.

    - `mirror`: the chance that a sub-sequence is mirrored, about the centre of the lens. That is
      not quite the middle of the image, about which the task mirrors windows.
    - `gain`, `flicker`: of the logarithm of the brightness, for a sub-sequence and for a frame.
    - `bias`: of what is added to the brightness of a sub-sequence, in gray levels of 255.
    - `noise`: of the brightness of single pixels, in gray levels.
    - `sway`: in degrees, how far the camera also turns left and right.
    - `sway_period`: in seconds, about how long that takes. It is drawn from half to twice of it.
    - `yaw`, `pitch`: in degrees, of how the camera is mounted in a sub-sequence.
    - `nod`: in degrees, of the pitch of single frames.
    - `turn`: in degrees, the largest angle by which a whole sub-sequence is turned, to the left or
      to the right. It is drawn evenly. Images are not changed by it, as nothing in them tells where
      north is: what must not depend on it need not be learned for every street.
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
        """Whether there is anything to draw."""
        return self.changes_images or self.turn > 0

    @property
    def changes_images(self) -> bool:
        """Whether images differ each time that they are seen."""
        return self != Augmentation(sway_period=self.sway_period, turn=self.turn)


class Distortion(eqx.Module):
    """What happens to the n frames of a sub-sequence, the first of which is number `first`.

    **Attributes:**

    - `gain`, `bias`: brightness is multiplied by the one, and the other is added.
    - `yaw`: by how much the camera turns to the left, in radians.
    - `pitch`: by how much it looks further up, in radians.
    - `mirrored`: whether the image is mirrored later, which is then done about the lens's centre.
    - `noise`: the standard deviation of the noise of pixels.
    - `key`: of that noise, which is one and the same for a frame whenever it is read.
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
        """The distorted image of a frame, by its number in the window."""
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
    """What a camera sees that is turned to the left and up, in radians.

    Brightness between pixels is interpolated; beyond the edge it goes on as at the edge.
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
    """The image, moved such that flipping it mirrors it about the centre of the lens."""
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
class Augment:
    """Draws the distortion of a sub-sequence, and changes its states alike."""

    settings: Augmentation
    velocities: Velocities

    @property
    def keeps_readings(self) -> bool:
        """Whether what a sensor sees is not changed, so that features can be computed once."""
        return not self.settings.changes_images

    def __call__(self, trajectory: Trajectory, key: Key) -> Trajectory:
        if self.settings.changes_images:
            trajectory = self._with_other_images(trajectory, key)
        if self.settings.turn > 0:
            trajectory = self._turned(trajectory, jr.fold_in(key, 0))
        return trajectory

    def _turned(self, trajectory: Trajectory, key: Key) -> Trajectory:
        """The sub-sequence in another direction; what is known of its start is alike in all."""
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
        """Additional headings of all frames, in degrees, and their rates, in degrees per second.

        The rate of a frame is that of the motion which its velocities are of.
        """
        settings, dtype = self.settings, steps.dtype
        phase_key, period_key, *keys = jr.split(key, 4)
        turn = 2 * math.pi
        phase = jr.uniform(phase_key, (), dtype, 0.0, turn)
        spread = jr.uniform(period_key, (), dtype, -1.0, 1.0) * math.log(PERIOD_SPREAD)
        period = settings.sway_period * jnp.exp(spread)
        amplitude, mount = (jr.normal(k, (), dtype) for k in keys)
        # One more step than there are before the first frame and after the last one: the
        # velocities of these frames may be of motions that nobody sees.
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
            # The frames are distorted first and mirrored then.
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
    """The states of a car that also turns to the left by these angles and rates, in degrees.

    It drives as far as before in every step, in the direction that is turned alike.
    """
    angles = yaw[:-1] * DEGREE
    along, aside = jnp.diff(states[:, 0]), jnp.diff(states[:, 1])
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    moved = jnp.stack([cosine * along - sine * aside, sine * along + cosine * aside], 1)
    position = jnp.concatenate([states[:1, :2], states[:1, :2] + jnp.cumsum(moved, 0)])
    heading = jnp.mod(states[:, 2] + yaw + 180.0, 360.0) - 180.0
    rest = jnp.stack([heading, states[:, 3], states[:, 4] + rates], 1)
    return jnp.concatenate([position, rest], 1)
