"""The network that reads images of the table (Kloss et al. 2021, pushing appendix).

Three branches see three things: the whole image says where the object is, a glimpse about that
place how far it has turned since the first image, and a glimpse about the pusher where the
pusher touches it. With smaller images, glimpses are smaller in proportion.

Two things are done otherwise. Coordinates of pixels are those of their centres, where the reference
is off by up to half a pixel at the borders. And what is outside of the image is constant, where
the reference has random noise.
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
"""Height and width of the glimpses in images of the full size."""

CONTACT_BIAS = -0.1
"""Of the score of contact: it is the rarer case."""

FARTHEST = 0.05
"""How much the depth that is measured at the contact may differ from the tip's, in metres."""

SHORTEST = 1e-5
"""Normals that are longer, in metres, have unit length."""

Pixel = Float[Array, " 2"]


class ImageFeatures(eqx.Module):
    """What the network says of an image.

    **Attributes:**

    - `logits`: scores of how much a place belongs to the object.
    - `rotation`, `contact`: the encodings of both glimpses.
    - `pixel`: where the object is in the image.
    - `value`: the observation: position (mm), rotation (degrees), contact point (mm), normal, and
      contact from 0 to 1.
    """

    logits: Float[Array, "*b rows columns"]
    rotation: Float[Array, "*b 64"]
    contact: Float[Array, "*b 128"]
    pixel: Float[Array, "*b 2"]
    value: Float[Array, "*b 8"]


class PushingNetwork(eqx.Module):
    """The sensor of the pushing task, but for its noise.

    **Arguments:**

    - `camera`: whose images it sees.
    - `rotation_glimpse`, `contact_glimpse`: height and width of the glimpses. By default they show
      as much as the reference's: 72 and 64 of 192 rows.
    - `precision`: of images and glimpses and of convolutions. Places and points are exact.
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
        """The scores of an image, and the pixel in which the object is."""
        seen = with_precision(_channels(image), self.precision)
        logits = self.position(seen).astype(image.rgb.dtype)
        return logits, self.position.mean_pixel(logits)

    def object_glimpse(self, image: Image, pixel: Pixel) -> Float[Array, "g g 3"]:
        """What is seen about the object. As in the reference, no gradient passes to its place."""
        return glimpse(image.rgb, jax.lax.stop_gradient(pixel), self.rotation_glimpse)

    def __call__(
        self,
        image: Image,
        tip: Float[Array, " 2"],
        next_tip: Float[Array, " 2"],
        first_glimpse: Float[Array, "g g 3"],
    ) -> ImageFeatures:
        """Reads an image.

        **Arguments:**

        - `tip`, `next_tip`: where the pusher is, and will be after the coming push, in mm.
        - `first_glimpse`: the object glimpse of the image that rotations are counted from.
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
        """Encoding, contact point in mm, normal, and contact."""
        here, there = (_at_tip_height(place) for place in (tip, next_tip))
        pixel, next_pixel = self.camera.project(here), self.camera.project(there)
        window = glimpse(_channels(image), pixel, self.contact_glimpse)
        window = window - jnp.concatenate([jnp.zeros_like(here), here])[None, None, :]
        size = np.asarray([self.camera.width, self.camera.height], pixel.dtype)
        # Of the order of one: places by half the image, motion and offsets by parts of it.
        action = jnp.concatenate([32 * (next_pixel - pixel) / size, 2 * pixel / size])
        window = with_precision(window, self.precision)
        encoding, offset, along, touching = self.contact(window, action)
        place, step = pixel + offset * size / 128, along * size / 128
        point = self._measured_point(image, place, here)
        end = self._measured_point(image, jax.lax.stop_gradient(place) + step, here)
        normal = _unit_length((end - jax.lax.stop_gradient(point))[:2])
        return encoding, MILLIMETRES * point[:2], normal, touching

    def _measured_point(self, image: Image, pixel: Pixel, tip: Array) -> Float[Array, " 3"]:
        """The point of the world that a pixel shows, or that is as far away as the tip.

        The depth that was measured there is taken for a constant.
        """
        depth = self.camera.depth(value_at(image.xyz, jax.lax.stop_gradient(pixel)))
        of_tip = self.camera.depth(tip)
        depth = jnp.where(jnp.abs(depth - of_tip) > FARTHEST, of_tip, depth)
        return self.camera.unproject(pixel, jax.lax.stop_gradient(depth))


def _channels(image: Image) -> Float[Array, "h w 6"]:
    return jnp.concatenate([image.rgb, image.xyz], -1)


def _at_tip_height(place: Float[Array, " 2"]) -> Float[Array, " 3"]:
    """In metres."""
    return jnp.append(place / MILLIMETRES, jnp.asarray(TIP_HEIGHT, place.dtype))


def _unit_length(vector: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """The vector in unit length, or in proportion where it is very short."""
    square = (vector**2).sum()
    # The root has no derivative at zero.
    return vector / jnp.sqrt(jnp.maximum(square, SHORTEST**2))
