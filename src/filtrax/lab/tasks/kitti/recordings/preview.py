"""Previews of drives: some images, and the path seen from above."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw

from filtrax.lab.tasks.kitti.motion import states
from filtrax.lab.tasks.kitti.recordings.drives import Drive
from filtrax.lab.tasks.pictures import save

GAP, CAPTION, MARGIN, SCALE_BAR = 4, 16, 10, 20
"""Sizes in pixels: gaps between pictures, captions, margins of a path, and its scale bar."""

SMALLEST_VIEW = 160
"""The smallest width and height of the picture of a path, in pixels."""

BACKGROUND, INK, PALE, CAR = (24, 26, 30), (235, 235, 235), (120, 125, 135), (255, 90, 70)

GRID = 3
"""Rows and columns of images of a drive on a contact sheet."""


def contact_sheet(drives: Sequence[Drive], path: str | Path, *, zoom: int = 2) -> None:
    """Writes a PNG with a row for each drive: its path, and nine images from start to end.

    The initial direction is upwards; a circle marks the start, a disc the end. Images are those of
    the drive's first camera.
    """
    _check(drives, zoom)
    sheet = _column([_sheet_of_one(drive, zoom) for drive in drives])
    save(path, [np.asarray(sheet)], "PNG")


def animation(
    drives: Sequence[Drive], path: str | Path, *, num_images: int = 100, zoom: int = 2
) -> None:
    """Writes an animated GIF of the first images of drives with the car's position on its path.

    Drives are stacked vertically with their cameras side by side, in real time. Shorter drives
    stop at their last image.
    """
    _check(drives, zoom)
    if num_images < 1:
        raise ValueError(f"`num_images` must be at least 1, got {num_images}.")
    count = min(num_images, max(drive.num_frames for drive in drives))
    views = [_bird_view(drive, zoom * drive.image_size[0]) for drive in drives]
    pictures = [
        _column(
            [
                _moment(drive, view, min(time, drive.num_frames - 1), zoom)
                for drive, view in zip(drives, views, strict=True)
            ]
        )
        for time in range(count)
    ]
    step = float(np.mean(np.diff(drives[0].times))) if drives[0].num_frames > 1 else 0.1
    save(path, map(np.asarray, pictures), "GIF", duration=round(1000 * step), loop=0)


class _BirdView:
    """The picture of a path, with the pixels of all positions."""

    def __init__(self, picture: Image.Image, pixels: Float[np.ndarray, "n 2"]):
        self.picture = picture
        self.pixels = pixels

    def with_car(self, frame: int) -> Image.Image:
        """Returns the picture with a disc at the car's position."""
        picture = self.picture.copy()
        _disc(ImageDraw.Draw(picture), self.pixels[frame], CAR)
        return picture


def _bird_view(drive: Drive, side: int) -> _BirdView:
    """Draws the path in a square with a scale bar."""
    side = max(side, SMALLEST_VIEW)
    room = side - SCALE_BAR - 2 * MARGIN
    positions = states(drive.poses, drive.times)[:, :2]
    low, high = positions.min(axis=0), positions.max(axis=0)
    extent = max(float((high - low).max()), 1.0)
    scale = room / extent
    # States have x forward and y to the left; pixels count to the right and down.
    forward, left = (positions - (low + high) / 2).T * scale
    pixels = np.stack([side / 2 - left, MARGIN + room / 2 - forward], axis=1)
    picture = Image.new("RGB", (side, side), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    bar = 10.0 ** math.floor(math.log10(extent))
    draw.line((MARGIN, side - 5, MARGIN + bar * scale, side - 5), PALE, 2)
    draw.text((MARGIN, side - SCALE_BAR), f"{bar:g} m", PALE)
    draw.line([(float(column), float(row)) for column, row in pixels], INK, 2)
    _disc(draw, pixels[0], None)
    return _BirdView(picture, pixels)


def _disc(
    draw: ImageDraw.ImageDraw, centre: Float[np.ndarray, "2"], fill: tuple[int, int, int] | None
) -> None:
    column, row = (float(part) for part in centre)
    draw.ellipse((column - 4, row - 4, column + 4, row + 4), fill, INK)


def _sheet_of_one(drive: Drive, zoom: int) -> Image.Image:
    count = min(GRID * GRID, drive.num_frames)
    times = np.linspace(0, drive.num_frames - 1, count).round().astype(int)
    camera = next(iter(drive.cameras))
    images = [_image(drive, camera, int(time), zoom) for time in times]
    rows = [_row(images[start : start + GRID]) for start in range(0, count, GRID)]
    grid = _column(rows)
    side = GRID * zoom * drive.image_size[0] + (GRID - 1) * GAP
    view = _bird_view(drive, side).with_car(drive.num_frames - 1)
    text = f"{drive.name}: {drive.num_frames} frames, {drive.length:.0f} m, {camera}"
    return _with_caption(text, _row([view, grid]))


def _moment(drive: Drive, view: _BirdView, time: int, zoom: int) -> Image.Image:
    images = [_image(drive, camera, time, zoom) for camera in drive.cameras]
    clock = drive.times[time] - drive.times[0]
    text = f"{drive.name}: frame {time}, {clock:.1f} s, {', '.join(drive.cameras)}"
    return _with_caption(text, _row([view.with_car(time), *images]))


def _image(drive: Drive, camera: str, time: int, zoom: int) -> Image.Image:
    pixels = np.array(drive.cameras[camera][time])
    pixels = np.broadcast_to(pixels, (*pixels.shape[:2], 3)) if pixels.shape[2] == 1 else pixels
    height, width = drive.image_size
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return image.resize((zoom * width, zoom * height), Image.Resampling.NEAREST)


def _with_caption(text: str, picture: Image.Image) -> Image.Image:
    caption = Image.new("RGB", (picture.width, CAPTION), BACKGROUND)
    ImageDraw.Draw(caption).text((GAP, 2), text, INK)
    whole = Image.new("RGB", (picture.width, CAPTION + picture.height), BACKGROUND)
    whole.paste(caption, (0, 0))
    whole.paste(picture, (0, CAPTION))
    return whole


def _row(pictures: Sequence[Image.Image]) -> Image.Image:
    width = sum(picture.width for picture in pictures) + GAP * (len(pictures) - 1)
    whole = Image.new("RGB", (width, max(picture.height for picture in pictures)), BACKGROUND)
    column = 0
    for picture in pictures:
        whole.paste(picture, (column, 0))
        column += picture.width + GAP
    return whole


def _column(pictures: Sequence[Image.Image]) -> Image.Image:
    height = sum(picture.height for picture in pictures) + GAP * (len(pictures) - 1)
    whole = Image.new("RGB", (max(picture.width for picture in pictures), height), BACKGROUND)
    row = 0
    for picture in pictures:
        whole.paste(picture, (0, row))
        row += picture.height + GAP
    return whole


def _check(drives: Sequence[Drive], zoom: int) -> None:
    if not drives:
        raise ValueError("There must be a drive at least to draw, got none.")
    if zoom < 1:
        raise ValueError(f"`zoom` must be at least 1, got {zoom}.")
