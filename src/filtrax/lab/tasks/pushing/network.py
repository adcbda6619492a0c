"""The network for images of the table (Kloss et al. 2021, pushing appendix).

It has three branches: the position of the object from the whole image, its rotation since the first
image from a glimpse around this position, and the contact from a glimpse around the pusher.
Glimpses are proportional to the size of images.

Two details differ from the reference. Coordinates of pixels are those of their centres; the
reference is off by up to half a pixel at the borders. Pixels outside of the image are constant; the
reference has random noise there.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Key, Scalar
from filtrax.lab.tasks.pushing.branches import ContactBranch, PositionBranch, RotationBranch
from filtrax.lab.tasks.pushing.camera import FULL_SIZE, MILLIMETRES, Camera
from filtrax.lab.tasks.pushing.glimpses import glimpse, value_at
from filtrax.lab.tasks.pushing.layers import draw_weights
from filtrax.lab.tasks.pushing.render import TIP_HEIGHT, Image
from filtrax.networks import Precision, with_precision

ROTATION_GLIMPSE, CONTACT_GLIMPSE = 72, 64
"""Height and width of glimpses in images of the full size."""

CONTACT_BIAS = -0.1
"""The initial bias of the contact's logit, negative because contact is the rarer case."""

FARTHEST = 0.05
"""The largest difference between measured depths of contact and tip, in metres."""

SHORTEST = 1e-5
"""Vectors longer than this, in metres, are normalized to unit length."""

Pixel = Float[Array, " 2"]


class ImageFeatures(eqx.Module):
    """The outputs of the network for an image.

    **Attributes:**

    - `logits`: scores that pixels belong to the object.
    - `rotation`, `contact`: the encodings of both glimpses.
    - `pixel`: the position of the object in the image.
    - `value`: the observation: position (mm), rotation (degrees), contact point (mm), normal, and
      the probability of contact.
    """

    logits: Float[Array, "*b rows columns"]
    rotation: Float[Array, "*b 64"]
    contact: Float[Array, "*b 128"]
    pixel: Float[Array, "*b 2"]
    value: Float[Array, "*b 8"]


class PushingNetwork(eqx.Module):
    """The sensor network of the pushing task, without its noise.

    **Arguments:**

    - `camera`: the camera of the images.
    - `rotation_glimpse`, `contact_glimpse`: height and width of glimpses, by default in proportion
      to the reference's, 72 and 64 of 192 rows.
    - `precision`: the precision of images, glimpses and convolutions, but not of positions.
    """

    position: PositionBranch
    rotation: RotationBranch
    contact: ContactBranch
    camera: Camera
    rotation_glimpse: int = eqx.field(static=True)
    contact_glimpse: int = eqx.field(static=True)
    precision: Precision = eqx.field(static=True)

    def __init__(
        self,
        camera: Camera,
        *,
        rotation_glimpse: int | None = None,
        contact_glimpse: int | None = None,
        precision: Precision = "full",
        key: Key,
    ):
        share = camera.height / FULL_SIZE[0]
        self.rotation_glimpse = rotation_glimpse or round(ROTATION_GLIMPSE * share)
        self.contact_glimpse = contact_glimpse or round(CONTACT_GLIMPSE * share)
        branches = (
            PositionBranch((camera.height, camera.width)),
            RotationBranch(self.rotation_glimpse),
            ContactBranch(self.contact_glimpse),
        )
        self.position, self.rotation, contact = draw_weights(branches, key=key)
        logit = lambda branch: branch.contact.layers[0].bias  # noqa: E731
        self.contact = eqx.tree_at(logit, contact, jnp.full(1, CONTACT_BIAS))
        self.camera, self.precision = camera, precision

    def locate(self, image: Image) -> tuple[Float[Array, "rows columns"], Pixel]:
        """Returns the scores of an image, and the pixel of the object."""
        seen = with_precision(_channels(image), self.precision)
        logits = self.position(seen).astype(image.rgb.dtype)
        return logits, self.position.mean_pixel(logits)

    def object_glimpse(self, image: Image, pixel: Pixel) -> Float[Array, "g g 3"]:
        """Cuts the glimpse around the object; as in the reference, `pixel` gets no gradient."""
        return glimpse(image.rgb, jax.lax.stop_gradient(pixel), self.rotation_glimpse)

    def __call__(
        self,
        image: Image,
        tip: Float[Array, " 2"],
        next_tip: Float[Array, " 2"],
        first_glimpse: Float[Array, "g g 3"],
    ) -> ImageFeatures:
        """Computes the features of an image.

        **Arguments:**

        - `image`: the image.
        - `tip`, `next_tip`: positions of the pusher now and after the coming push, in mm.
        - `first_glimpse`: the object glimpse of the first image, the reference of rotations.
        """
        logits, pixel = self.locate(image)
        turned = first_glimpse - self.object_glimpse(image, pixel)
        rotation, angle = self.rotation(with_precision(turned, self.precision))
        contact, point, normal, touching = self._contact(image, tip, next_tip)
        normal = jnp.where(touching < 0.5, 0.0, normal)
        position = self.camera.position_at(pixel)
        value = jnp.concatenate([position, angle[None], point, normal, touching[None]])
        return ImageFeatures(logits, rotation, contact, pixel, value)

    def _contact(
        self, image: Image, tip: Float[Array, " 2"], next_tip: Float[Array, " 2"]
    ) -> tuple[Float[Array, " 128"], Float[Array, " 2"], Float[Array, " 2"], Scalar]:
        """Returns encoding, contact point in mm, normal, and probability of contact."""
        here, there = (_at_tip_height(place) for place in (tip, next_tip))
        pixel, next_pixel = self.camera.project(here), self.camera.project(there)
        window = glimpse(_channels(image), pixel, self.contact_glimpse)
        window = window - jnp.concatenate([jnp.zeros_like(here), here])[None, None, :]
        size = np.asarray([self.camera.width, self.camera.height], pixel.dtype)
        # Scale to order one: positions by half the image, motion and offsets by parts of it.
        action = jnp.concatenate([32 * (next_pixel - pixel) / size, 2 * pixel / size])
        window = with_precision(window, self.precision)
        encoding, offset, along, touching = self.contact(window, action)
        place, step = pixel + offset * size / 128, along * size / 128
        point = self._measured_point(image, place, here)
        end = self._measured_point(image, jax.lax.stop_gradient(place) + step, here)
        normal = _unit_length((end - jax.lax.stop_gradient(point))[:2])
        return encoding, MILLIMETRES * point[:2], normal, touching

    def _measured_point(self, image: Image, pixel: Pixel, tip: Array) -> Float[Array, " 3"]:
        """Returns the point of the world at a pixel, with its measured depth or that of the tip.

        The tip's depth is used if they differ by more than `FARTHEST`. Depth gets no gradient.
        """
        depth = self.camera.depth(value_at(image.xyz, jax.lax.stop_gradient(pixel)))
        of_tip = self.camera.depth(tip)
        depth = jnp.where(jnp.abs(depth - of_tip) > FARTHEST, of_tip, depth)
        return self.camera.unproject(pixel, jax.lax.stop_gradient(depth))


def _channels(image: Image) -> Float[Array, "h w 6"]:
    return jnp.concatenate([image.rgb, image.xyz], -1)


def _at_tip_height(place: Float[Array, " 2"]) -> Float[Array, " 3"]:
    """Returns a position of the tip in world coordinates, in metres."""
    return jnp.append(place / MILLIMETRES, jnp.asarray(TIP_HEIGHT, place.dtype))


def _unit_length(vector: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Normalizes a vector; one shorter than `SHORTEST` is divided by `SHORTEST`."""
    square = (vector**2).sum()
    # The square root has no derivative at zero.
    return vector / jnp.sqrt(jnp.maximum(square, SHORTEST**2))
