"""Images encoded as text for an HTML page."""

import base64
import io

import numpy as np
from jaxtyping import UInt8
from PIL import Image

MOST_COLOURS = 256


def sheet_size(num_frames: int) -> tuple[int, int]:
    """Returns rows and columns of a nearly square sheet; browsers limit the length of images."""
    columns = max(1, int(np.ceil(np.sqrt(num_frames))))
    return -(-num_frames // columns), columns


def sheet(frames: UInt8[np.ndarray, "t h w 3"]) -> UInt8[np.ndarray, "height width 3"]:
    """Tiles all frames of a sequence into one image, row by row.

    One image compresses much better than many, because neighbouring frames are similar.
    """
    count, height, width, _ = frames.shape
    rows, columns = sheet_size(count)
    padded = np.zeros((rows * columns, height, width, 3), np.uint8)
    padded[:count] = frames
    grid = padded.reshape(rows, columns, height, width, 3).transpose(0, 2, 1, 3, 4)
    return grid.reshape(rows * height, columns * width, 3)


def png_uri(image: UInt8[np.ndarray, "h w 3"]) -> str:
    """Encodes an image as a `data:` URI of a PNG file.

    Up to 256 colours are exact; images with more are quantized to a palette of 256.
    """
    file = io.BytesIO()
    _with_palette(image).save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _with_palette(image: UInt8[np.ndarray, "h w 3"]) -> Image.Image:
    red, green, blue = np.moveaxis(image.astype(np.uint32), -1, 0)
    packed, places = np.unique(red << 16 | green << 8 | blue, return_inverse=True)
    if len(packed) > MOST_COLOURS:
        return Image.fromarray(image).quantize(MOST_COLOURS, dither=Image.Dither.NONE)
    reduced = Image.fromarray(places.reshape(image.shape[:2]).astype(np.uint8))
    palette = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=-1)
    reduced.putpalette(palette.astype(np.uint8).tobytes())
    return reduced
