"""The images of readings: what the camera shows at a step of a sequence."""

from filtrax.arrays import Context, Reading
from filtrax.tasks.pushing.camera import Camera
from filtrax.tasks.pushing.encoders import shape_of_number
from filtrax.tasks.pushing.render import Image, Scene, render


def image_of(reading: Reading, context: Context, camera: Camera) -> Image:
    """The image of a reading, which has the `pose` of the object and the `tip` of the pusher."""
    shape = shape_of_number(context["shape"])
    scene = Scene(reading["pose"], shape, reading["tip"], context["arm"], context["look"])
    return render(scene, camera)
