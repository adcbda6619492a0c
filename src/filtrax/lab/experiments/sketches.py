"""Outlines of objects seen from above, for the player of a report."""

from collections.abc import Sequence

import numpy as np

from filtrax.lab.tasks import AbstractTask
from filtrax.trajectory import Trajectory


def sketches(
    task: AbstractTask, sequences: Sequence[Trajectory], means: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns outlines and arrows of true and estimated states, and companions' paths.

    The dict is empty if the task has none of them; see `docs/reference/run_folder.md`.
    """
    drawn = {}
    for kind, shown in (("true_", [np.asarray(one.states) for one in sequences]), ("", means)):
        pairs = zip(sequences, shown, strict=True)
        drawings = [task.sketch(sequence, states) for sequence, states in pairs]
        known = [sketch for sketch in drawings if sketch is not None]
        if known:
            drawn[f"{kind}outlines"] = np.stack([sketch.outlines for sketch in known])
            drawn[f"{kind}arrows"] = np.stack([sketch.arrows for sketch in known])
    companions = [task.companions(sequence) for sequence in sequences]
    if companions and companions[0]:
        drawn["companion_names"] = np.asarray([*companions[0]])
        paths = [np.stack([*paths.values()], axis=1) for paths in companions]
        drawn["companions"] = np.stack(paths)
    return drawn
