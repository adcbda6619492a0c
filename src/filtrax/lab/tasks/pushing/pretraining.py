"""Objectives for pretraining sensor and process of the pushing task (Kloss et al. 2021).

Besides observations, the sensor learns from the object's pixel and segmentation. Each objective is
a term that training stages can weight; the phases of the reference code are stages with different
weights (`configs/pushing_sensor.toml`). Terms are means over steps; the reference sums the squared
error of observations over a batch.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from filtrax._types import Context, Key, Reading, Scalar
from filtrax.filters._run import sense_all
from filtrax.lab.tasks.pushing.camera import FULL_SIZE, Camera
from filtrax.lab.tasks.pushing.encoders import PushingEncoder
from filtrax.lab.tasks.pushing.layers import resize
from filtrax.lab.tasks.pushing.network import ImageFeatures
from filtrax.lab.tasks.pushing.render import OBJECT_LABEL, Image
from filtrax.lab.tasks.pushing.space import OBSERVATION
from filtrax.linalg import precise
from filtrax.sensors import Measurement
from filtrax.state_space import StateSpaceModel
from filtrax.training.protocols import AbstractObjective
from filtrax.trajectory import Trajectory

SMALLEST_NORMAL = 1e-6
SMALLEST_CHANCE = 1e-7


def lessons(
    encoder: Any, features: ImageFeatures, reading: Reading, context: Context
) -> dict[str, Scalar] | None:
    """Computes auxiliary training losses of a sensor from its images.

    "pixel" is the squared error of the object's position in pixels of the full size, and
    "segmentation" the cross-entropy of the scores, summed over pixels. Both are sums over the
    current and the first image. Unused losses are removed by the compiler. The result is None for
    precomputed features, which have no images.
    """
    if not isinstance(encoder, PushingEncoder):
        return None
    network = encoder.network
    first = encoder.see(context["first"], context)
    logits, pixel = network.locate(first)
    image = encoder.see(reading, context)
    now = _squared_distance(features.pixel, reading, network.camera)
    before = _squared_distance(pixel, context["first"], network.camera)
    shown = _cross_entropy(features.logits, image) + _cross_entropy(logits, first)
    return {"pixel": now + before, "segmentation": shown}


def _squared_distance(pixel: Float[Array, " 2"], reading: Reading, camera: Camera) -> Scalar:
    offset = pixel - camera.project_position(reading["pose"][:2])
    full = np.asarray([FULL_SIZE[1] / camera.width, FULL_SIZE[0] / camera.height], offset.dtype)
    return ((offset * full) ** 2).sum()


def _cross_entropy(logits: Float[Array, "rows columns"], image: Image) -> Scalar:
    height, width = image.segmentation.shape
    scores = resize(logits[:, :, None], (height, width))[:, :, 0]
    signs = jnp.where(image.segmentation == OBJECT_LABEL, -1.0, 1.0).astype(scores.dtype)
    return jax.nn.softplus(signs * scores).sum()


class SensorLoss(eqx.Module):
    """An auxiliary loss of the sensor by name, averaged over steps."""

    name: str = eqx.field(static=True)

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """Computes the mean over the steps of one trajectory; raises without such losses."""
        del filt, progress
        measurements, _, _ = _sensed(model, trajectory, key)
        if measurements.losses is None:
            raise ValueError(
                f"The term {self.name!r} needs a sensor whose encoder is trained, so that it sees "
                'images: put "model.sensor.encoder" into `train`, or leave the term out.'
            )
        return measurements.losses[self.name].mean()


def observation_error(filt, model, trajectory, progress, key) -> Scalar:
    """Computes the squared error of observations; contact point and normal count in contact only.

    It is summed over components and averaged over steps.
    """
    del filt, progress
    measurements, true, known = _sensed(model, trajectory, key)
    error = jax.vmap(model.bind(trajectory.context).observation_space.difference)(
        measurements.value, true
    )
    of_contact = np.asarray([name in ("rx", "ry", "nx", "ny") for name in OBSERVATION])
    counts = known & (~of_contact[None, :] | _touching(true)[:, None])
    return jnp.where(counts, error**2, 0.0).sum(-1).mean()


def normal_angle(filt, model, trajectory, progress, key) -> Scalar:
    """Computes the mean angle between measured and true normal in degrees, 0 if undefined."""
    del filt, progress
    measurements, true, _ = _sensed(model, trajectory, key)
    ours, theirs = (values[:, 5:7] for values in (measurements.value, true))
    directed = ((ours**2).sum(-1) > SMALLEST_NORMAL**2) & _touching(true)
    ours = jnp.where(directed[:, None], ours, jnp.ones_like(ours))
    across = ours[:, 0] * theirs[:, 1] - ours[:, 1] * theirs[:, 0]
    along = jnp.where(directed, (ours * theirs).sum(-1), 1.0)
    return jnp.where(directed, jnp.abs(jnp.degrees(jnp.arctan2(across, along))), 0.0).mean()


def contact_entropy(filt, model, trajectory, progress, key) -> Scalar:
    """Computes the mean cross-entropy of the measured probability of contact."""
    del filt, progress
    measurements, true, _ = _sensed(model, trajectory, key)
    chance = jnp.where(_touching(true), measurements.value[:, 7], 1 - measurements.value[:, 7])
    return -jnp.log(jnp.maximum(chance, SMALLEST_CHANCE)).mean()


def rotation_range(filt, model, trajectory, progress, key) -> Scalar:
    """Computes the mean squared excess of measured rotations beyond half a turn."""
    del filt, progress
    measurements, _, _ = _sensed(model, trajectory, key)
    return (jnp.maximum(jnp.abs(measurements.value[:, 2]) - 180.0, 0.0) ** 2).mean()


class ProcessError(AbstractObjective):
    """The squared error of single steps between true states, summed over components."""

    @property
    def needs_readings(self) -> bool:
        return False

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """Computes the mean over the steps of one trajectory."""
        del filt, progress, key
        model = model.bind(trajectory.context)
        states, labels = trajectory.known_states()
        predicted = jax.vmap(precise(model.process))(states[:-1], trajectory.inputs[1:])
        error = jax.vmap(model.state_space.difference)(states[1:], predicted)
        return jnp.where(labels[1:], error**2, 0.0).sum(-1).mean()


TERMS = {
    "observation": observation_error,
    "pixel": SensorLoss("pixel"),
    "segmentation": SensorLoss("segmentation"),
    "normal": normal_angle,
    "contact": contact_entropy,
    "rotation_range": rotation_range,
    "process": ProcessError(),
}
"""The terms by name, for the weights in configurations."""


def _sensed(
    model: StateSpaceModel, trajectory: Trajectory, key: Key
) -> tuple[Measurement, Float[Array, "t 8"], Bool[Array, "t 8"]]:
    """Returns measurements, true observations, and a mask of their known components."""
    measurements = sense_all(
        model,
        trajectory.readings,
        trajectory.observed,
        trajectory.inputs,
        trajectory.context,
        key=key,
    )
    states, labels = trajectory.known_states()
    observe = lambda states: jax.vmap(model.observe)(states, trajectory.inputs)  # noqa: E731
    known = observe(labels.astype(states.dtype)) > 0
    return measurements, observe(states), known


def _touching(true: Float[Array, "t 8"]) -> Bool[Array, " t"]:
    return true[:, 7] >= 0.5
