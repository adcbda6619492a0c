"""Small tables of what a trained filter predicts, for figures: plain lists that JSON can hold."""

from typing import Any

import numpy as np

NUM_CELLS = 6
"""Of a map, along each axis."""

HALF_WIDTH = 60.0
"""A map reaches so far from the origin to all sides, in the units of the state."""

CANDIDATES = 20
"""Among that many sequences the one is chosen whose true noise changes most often."""

DIGITS = 4


def most_changing(true_stds: np.ndarray) -> int:
    """The sequence, of those in front, in which the true process noise changes most often."""
    changes = (np.diff(true_stds[:CANDIDATES], axis=1) != 0).any(-1).sum(-1)
    return int(changes.argmax())


def over_a_sequence(process_stds: np.ndarray, true_stds: np.ndarray | None) -> dict[str, Any]:
    """Predicted and true standard deviations of the process noise, over one sequence."""
    if true_stds is None:
        return {"process_std": plain(process_stds[0])}
    chosen = most_changing(true_stds)
    return {
        "process_std": plain(process_stds[chosen]),
        "true_process_std": plain(true_stds[chosen]),
    }


def over_the_plane(
    positions: np.ndarray, process_stds: np.ndarray, visible: np.ndarray | None
) -> dict[str, Any]:
    """Means over all steps whose true position is in a cell of a square grid.

    The process noise of a step depends on the state before it. So each position goes with the
    predicted noise of the step that begins there, and the last position of a sequence with none.

    **Returns:** rows are y and columns x; a cell that nothing was in has none (null).
    """
    edges = np.linspace(-HALF_WIDTH, HALF_WIDTH, NUM_CELLS + 1)
    before = positions[:, :-1].reshape(-1, 2)
    cells = (edges, edges)
    rows_and_columns = (before[:, 1], before[:, 0])
    counts = np.histogram2d(*rows_and_columns, cells)[0]

    def mean(values: np.ndarray) -> list:
        sums = np.histogram2d(*rows_and_columns, cells, weights=values.ravel())[0]
        return plain(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0))

    maps: dict[str, Any] = {"edges": plain(edges), "counts": counts.astype(int).tolist()}
    maps["process_std_map"] = mean(process_stds[:, 1:, :2].mean(-1))
    if visible is not None:
        maps["occlusion"] = mean((visible[:, :-1] == 0).astype(float))
    return maps


def plain(values: np.ndarray) -> list:
    """Rounded numbers in lists; what is not finite is None."""
    rounded = np.round(np.asarray(values, float), DIGITS)
    numbers = rounded.astype(object)
    numbers[~np.isfinite(rounded)] = None
    return numbers.tolist()
