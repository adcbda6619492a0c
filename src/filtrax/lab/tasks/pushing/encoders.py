"""From a scene to features: what the sensor of the pushing task looks at."""

from typing import ClassVar

import equinox as eqx

from filtrax._types import Context, Inputs, Key, Reading
from filtrax.lab.tasks.pushing.network import ImageFeatures, PushingNetwork
from filtrax.lab.tasks.pushing.render import Image
from filtrax.lab.tasks.pushing.scenes import FRAMES_AT_ONCE, image_of


class PushingEncoder(eqx.Module):
    """Draws the image of a reading and reads it.

    A reading has the object's `pose` (x and y in mm, absolute orientation in degrees), and where
    the pusher is, `tip`, and will be after the coming push, `next_tip` (both in mm). The context
    has the number of the object's `shape`, the `look` of the scene, where the `arm` comes from, and
    `first`, pose and tip in the image that rotations are counted from.

    That image is of the context alone. So however many readings this is mapped over, it is drawn
    and read once per sequence. No gradient passes through it, because a glimpse has none with
    respect to its place.
    """

    frames_at_once: ClassVar[int] = FRAMES_AT_ONCE
    sequential_members: ClassVar[bool] = True
    network: PushingNetwork

    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> ImageFeatures:
        del inputs, key
        first = self.see(context["first"], context)
        _, pixel = self.network.locate(first)
        glimpse = self.network.object_glimpse(first, pixel)
        image = self.see(reading, context)
        return self.network(image, reading["tip"], reading["next_tip"], glimpse)

    def see(self, reading: Reading, context: Context) -> Image:
        """The image of a reading."""
        return image_of(reading, context, self.network.camera)
