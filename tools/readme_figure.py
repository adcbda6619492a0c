"""Draws the figure of the README: the demo's filter while the disc that it follows is hidden.

    filtrax demo
    python tools/readme_figure.py runs/demo/learned_noise docs/figures/hidden_disc.png

Of the sequences that the run shows, it takes the one whose disc is hidden longest. A
white cross is the truth, a line the estimate, an ellipse holds the disc with 95 %.
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

NUM_IMAGES = 5
BEFORE, TAIL = 2, 8
"""Steps before and after the disc is hidden, and those of the path that is drawn."""

RADII = 2.448
"""Semi-axes of the ellipse that holds 95 % of a normal distribution, in standard deviations."""


def longest_hidden(arrays: Any) -> tuple[int, int, int]:
    """The sequence, first step and end of the longest time behind other discs.

    The disc is inside of the image all the time, and seen again afterwards.
    """
    places = arrays["states"] @ arrays["view_matrix"].T + arrays["view_offset"]
    height, width = arrays["frames"].shape[2:4]
    inside = ((places > 0) & (places < np.asarray([width, height]))).all(-1)
    spans = []
    for sequence, hidden in enumerate((arrays["visible"] == 0) & inside):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], hidden, [0]])))
        for first, end in edges.reshape(-1, 2):
            if first >= BEFORE and inside[sequence, first - BEFORE : end + BEFORE].all():
                spans.append((end - first, sequence, first, end))
    _, sequence, first, end = max(spans)
    return sequence, int(first), int(end)


def draw(arrays: Any, path: Path) -> None:
    """Writes the picture: some images from before until after, with what the filter believes."""
    sequence, first, end = longest_hidden(arrays)
    middle = (first + end - 1) // 2
    steps = range(middle - NUM_IMAGES // 2, middle + NUM_IMAGES // 2 + 1)
    figure, axes = plt.subplots(1, NUM_IMAGES, figsize=(2.3 * NUM_IMAGES, 2.6))
    matrix, offset = arrays["view_matrix"], arrays["view_offset"]
    truth = arrays["states"][sequence] @ matrix.T + offset
    estimate = arrays["means"][sequence] @ matrix.T + offset
    covariances = matrix @ arrays["covariances"][sequence] @ matrix.T
    for ax, step in zip(axes, steps, strict=True):
        ax.imshow(arrays["frames"][sequence, step])
        limits = ax.get_xlim(), ax.get_ylim()
        variances, directions = np.linalg.eigh(covariances[step])
        angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
        width, height = 2 * RADII * np.sqrt(variances[::-1])
        line = {"fill": False, "color": "white", "linewidth": 1.8}
        ax.add_patch(Ellipse(tuple(estimate[step]), width, height, angle=angle, **line))
        ax.plot(*estimate[max(step - TAIL, 0) : step + 1].T, color="white", linewidth=1)
        ax.plot(*truth[step], "+", color="white", markersize=9, markeredgewidth=1.8)
        ax.set(xlim=limits[0], ylim=limits[1], xticks=[], yticks=[])
        pixels = arrays["visible"][sequence, step]
        ax.set_title(f"step {step}: " + ("hidden" if pixels == 0 else f"{pixels} pixels"))
    figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    with np.load(Path(sys.argv[1]) / "evaluation.npz") as stored:
        draw(dict(stored), Path(sys.argv[2]))
