"""The tasks of the paper: data, models, and drawings of them."""

from filtrax.lab.tasks.base import SPLITS, AbstractTask, Details, Sketch, View

__all__ = ["SPLITS", "AbstractTask", "Details", "Sketch", "View"]
