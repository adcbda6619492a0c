"""The tasks of the paper: data, models, and drawings of them."""

from filtrax.lab.tasks.base import (
    SPLITS,
    AbstractModelSettings,
    AbstractRecordedTask,
    AbstractTask,
    Contrast,
    Details,
    Drawing,
    Sketch,
    View,
)

__all__ = [
    "SPLITS",
    "AbstractModelSettings",
    "AbstractRecordedTask",
    "AbstractTask",
    "Contrast",
    "Details",
    "Drawing",
    "Sketch",
    "View",
]
