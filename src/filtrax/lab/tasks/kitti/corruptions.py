"""Corruptions of images, as by a faulty camera, to test novelty warnings.

All functions take and return uint8 frames of shape (..., height, width, channels).
"""

import numpy as np
from jaxtyping import UInt8

Frames = UInt8[np.ndarray, "*frames height width channels"]


def add_noise(frames: Frames, std: float = 40.0, *, seed: int = 0) -> Frames:
    """Adds independent Gaussian noise to all pixels and channels."""
    draw = np.random.default_rng(seed)
    noisy = np.empty_like(frames)
    for index in np.ndindex(frames.shape[:-3]):  # one at a time, to limit the memory of float64
        noisy[index] = _as_bytes(frames[index] + draw.normal(0.0, std, frames.shape[-3:]))
    return noisy


def blur(frames: Frames, std: float = 2.0) -> Frames:
    """Convolves with a Gaussian; pixels at the edge are repeated beyond it."""
    radius = int(np.ceil(3 * std))
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / std) ** 2)
    weights /= weights.sum()
    blurred = np.empty_like(frames)
    for index in np.ndindex(frames.shape[:-3]):
        image = frames[index].astype(np.float64)
        for axis in (0, 1):
            padding = [(radius, radius) if i == axis else (0, 0) for i in range(3)]
            padded = np.pad(image, padding, mode="edge")
            windows = np.lib.stride_tricks.sliding_window_view(padded, weights.size, axis)
            image = windows @ weights
        blurred[index] = _as_bytes(image)
    return blurred


def blacken(frames: Frames) -> Frames:
    """Returns black frames, as behind a lens cap."""
    return np.zeros_like(frames)


def _as_bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.round(values), 0, 255).astype(np.uint8)
