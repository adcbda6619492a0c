"""Small tables of a trained filter's predicted noise for figures, as lists for JSON."""

from typing import Any

import numpy as np

NUM_CELLS = 6
"""The number of cells of a map along each axis."""

HALF_WIDTH = 60.0
"""Half the width of a map around the origin, in the units of the state."""

CANDIDATES = 20
"""The number of first sequences among which `most_changing` chooses."""

DIGITS = 4


def most_changing(true_stds: np.ndarray) -> int:
    """Returns the index of the sequence, of the first ones, whose true noise changes most often."""
    changes = (np.diff(true_stds[:CANDIDATES], axis=1) != 0).any(-1).sum(-1)
    return int(changes.argmax())


def over_a_sequence(process_stds: np.ndarray, true_stds: np.ndarray | None) -> dict[str, Any]:
    """Returns predicted and true standard deviations of the process noise in one sequence."""
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
    """Averages process noise and occlusion over the cells of a square grid of true positions.

    The process noise of a step depends on the state before it, so each position is paired with
    the predicted noise of the next step, and the last position of a sequence is not used.

    **Returns:** rows are y and columns x; empty cells are None.
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
    """Converts an array to nested lists of rounded numbers; numbers that are not finite to None."""
    rounded = np.round(np.asarray(values, float), DIGITS)
    numbers = rounded.astype(object)
    numbers[~np.isfinite(rounded)] = None
    return numbers.tolist()
