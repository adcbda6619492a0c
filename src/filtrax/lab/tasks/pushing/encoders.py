"""The encoder of the pushing task's sensor, from a scene to features."""

from typing import ClassVar

from filtrax._types import Context, Inputs, Key, Reading
from filtrax.lab.tasks.pushing.network import ImageFeatures, PushingNetwork
from filtrax.lab.tasks.pushing.render import Image
from filtrax.lab.tasks.pushing.scenes import FRAMES_AT_ONCE, image_of
from filtrax.sensors import AbstractEncoder


class PushingEncoder(AbstractEncoder):
    """Renders the image of a reading and encodes it.

    A reading has the object's `pose` (x and y in mm, absolute orientation in degrees), and the
    positions of the pusher now, `tip`, and after the coming push, `next_tip` (both in mm). The
    context has the index of the object's `shape`, the `look` of the scene, the `arm`, and `first`,
    pose and tip in the first image, relative to which rotations are measured.

    The first image depends only on the context, so under `vmap` over readings it is rendered and
    encoded once per sequence. No gradient passes through it, because glimpses have no gradient
    with respect to their position.
    """

    frames_at_once: ClassVar[int | None] = FRAMES_AT_ONCE
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
        """Renders the image of a reading."""
        return image_of(reading, context, self.network.camera)
