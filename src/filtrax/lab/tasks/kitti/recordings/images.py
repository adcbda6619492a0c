"""Finds, reads and resizes the images of one camera."""

import functools
import io
import itertools
import math
import re
import struct
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

_NAME = re.compile(r"(?:image_?)?(\d+)\.png", re.IGNORECASE)
"""Names like 000000.png of KITTI, and image_00000.png of differentiable particle filters."""

_SIZE = slice(16, 24)
"""The place of width and height in the header of a PNG file."""

_BIT_DEPTH = 24
"""The offset of the bit depth in the header of a PNG file."""

MOST_PIXELS = 2**26
"""The most pixels of an image that is read; a small file may claim any number."""


_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


def has_images(folder: Path) -> bool:
    """Returns True if a folder exists and contains an image."""
    return folder.is_dir() and any(_NAME.fullmatch(path.name) for path in folder.iterdir())


def image_files(folder: Path) -> dict[int, Path]:
    """Returns the images of a folder by number, in order; raises if numbers are missing.

    Numbers need not start at 0.
    """
    found = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    numbered = sorted((int(match[1]), path) for match, path in found if match)
    for (number, path), (following, other) in itertools.pairwise(numbered):
        if following != number + 1:
            raise ValueError(
                f"The images in {folder} must be numbered one by one, but {path.name} is followed "
                f"by {other.name}: restore the missing ones, or remove what is too much."
            )
    return dict(numbered)


def read_image(path: Path) -> UInt8[np.ndarray, "height width channels"]:
    """Reads a PNG image of 8-bit numbers with one channel if it is gray, else three."""
    try:
        content = path.read_bytes()
        if math.prod(struct.unpack(">II", content[_SIZE].ljust(8, b"\0"))) > MOST_PIXELS:
            raise ValueError(f"it has more than {MOST_PIXELS} pixels")
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            image.load()
            gray = image.mode in ("1", "L", "LA", "I", "I;16")
            if content[_BIT_DEPTH] <= 8:
                pixels = np.asarray(image.convert("L" if gray else "RGB"))
                return pixels[:, :, None] if gray else pixels
    except _DAMAGE as error:
        reason = (
            "no image is found in it" if isinstance(error, Image.UnidentifiedImageError) else error
        )
        raise ValueError(
            f"{path} must be a complete PNG file, but it cannot be read: {reason}. Restore it."
        ) from error
    raise ValueError(
        f"{path} must be a PNG file of 8-bit numbers, but it has {content[_BIT_DEPTH]} bits: "
        "convert it."
    )


def shrunk(
    image: UInt8[np.ndarray, "h w c"], size: tuple[int, int]
) -> UInt8[np.ndarray, "height width c"]:
    """Resizes an image to fewer pixels, each the mean of the area that it covers.

    Old pixels that overlap several new ones are weighted by the overlapping area.
    """
    height, width, channels = image.shape
    if (height, width) == size:
        return image
    rows, columns = _coverage(height, size[0]), _coverage(width, size[1])
    lines = rows @ image.reshape(height, width * channels).astype(np.float32)
    pixels = np.matmul(columns, lines.reshape(size[0], width, channels))
    return np.rint(pixels).astype(np.uint8)


@functools.lru_cache(maxsize=16)
def _coverage(old: int, new: int) -> Float[np.ndarray, "new old"]:
    """Returns the share of each new pixel that each old one covers, along one axis."""
    edges = np.arange(new + 1) * (old / new)
    pixels = np.arange(old)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return (np.clip(overlap, 0.0, None) * (new / old)).astype(np.float32)
