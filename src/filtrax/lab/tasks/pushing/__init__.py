"""Planar pushing: the pose of an object that a robot pushes over a table."""

from filtrax.lab.tasks.pushing.model import PushingModel
from filtrax.lab.tasks.pushing.task import PushingTask

__all__ = ["PushingModel", "PushingTask"]
