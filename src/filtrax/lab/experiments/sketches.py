"""Outlines of objects seen from above, for the player of a report."""

from collections.abc import Sequence

import numpy as np

from filtrax.lab.tasks import Drawing
from filtrax.trajectory import Trajectory


def sketches(
    drawing: Drawing, sequences: Sequence[Trajectory], means: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns outlines and arrows of true and estimated states, and companions' paths.

    The dict is empty if the drawing has none of them; see `docs/reference/run_folder.md`.
    """
    drawn = {}
    if drawing.sketch is not None:
        for kind, shown in (("true_", [np.asarray(one.states) for one in sequences]), ("", means)):
            pairs = zip(sequences, shown, strict=True)
            made = [drawing.sketch(sequence, states) for sequence, states in pairs]
            drawn[f"{kind}outlines"] = np.stack([sketch.outlines for sketch in made])
            drawn[f"{kind}arrows"] = np.stack([sketch.arrows for sketch in made])
    if drawing.companions is not None:
        companions = [drawing.companions(sequence) for sequence in sequences]
        drawn["companion_names"] = np.asarray([*companions[0]])
        paths = [np.stack([*paths.values()], axis=1) for paths in companions]
        drawn["companions"] = np.stack(paths)
    return drawn
