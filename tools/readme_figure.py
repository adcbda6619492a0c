"""Draws the figure of the README: the demo's filter while the disc that it follows is hidden.

    filtrax demo
    python tools/readme_figure.py runs/demo/learned_noise docs/figures/hidden_disc.png

Of the sequences that the run shows, it takes the one whose disc is hidden longest.
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

NUM_IMAGES = 5
RADII = 2.448
"""Semi-axes of the ellipse that holds 95 % of a normal distribution, in standard deviations."""


def longest_hidden(visible: np.ndarray) -> tuple[int, int, int]:
    """The sequence, first step and end of the longest time without a visible pixel."""
    spans = []
    for sequence, hidden in enumerate(visible == 0):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], hidden, [0]])))
        spans += [(end - first, sequence, first, end) for first, end in edges.reshape(-1, 2)]
    _, sequence, first, end = max(spans)
    return sequence, int(first), int(end)


def draw(arrays: Any, path: Path) -> None:
    """Writes the picture: some images from before until after, with what the filter believes."""
    sequence, first, end = longest_hidden(arrays["visible"])
    num_steps = arrays["visible"].shape[1]
    steps = np.linspace(max(first - 3, 0), min(end + 3, num_steps - 1), NUM_IMAGES).astype(int)
    figure, axes = plt.subplots(1, NUM_IMAGES, figsize=(2.2 * NUM_IMAGES, 2.5))
    matrix, offset = arrays["view_matrix"], arrays["view_offset"]
    to_pixel = lambda states: states @ matrix.T + offset  # noqa: E731
    truth = to_pixel(arrays["states"][sequence])
    estimate = to_pixel(arrays["means"][sequence])
    covariances = matrix @ arrays["covariances"][sequence] @ matrix.T
    for ax, step in zip(axes, steps, strict=True):
        ax.imshow(arrays["frames"][sequence, step])
        limits = ax.get_xlim(), ax.get_ylim()
        variances, directions = np.linalg.eigh(covariances[step])
        angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
        width, height = 2 * RADII * np.sqrt(variances[::-1])
        line = {"fill": False, "color": "white", "linewidth": 1.8}
        ax.add_patch(Ellipse(tuple(estimate[step]), width, height, angle=angle, **line))
        ax.plot(*estimate[: step + 1].T, color="white", linewidth=1)
        ax.plot(*truth[step], "+", color="white", markersize=9, markeredgewidth=1.8)
        ax.set(xlim=limits[0], ylim=limits[1], xticks=[], yticks=[])
        pixels = arrays["visible"][sequence, step]
        ax.set_title(f"step {step}: " + ("hidden" if pixels == 0 else f"{pixels} pixels"))
    figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    with np.load(Path(sys.argv[1]) / "evaluation.npz") as stored:
        draw(dict(stored), Path(sys.argv[2]))
