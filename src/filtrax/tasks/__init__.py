"""The tasks of the paper: data, models and what to look at."""

from filtrax.tasks.base import SPLITS, AbstractTask, Details, View

__all__ = ["SPLITS", "AbstractTask", "Details", "View"]
