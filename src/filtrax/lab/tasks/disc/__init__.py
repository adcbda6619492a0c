"""Tracking a red disc among others that hide it, as in Kloss et al. (2021), section 6."""

from filtrax.lab.tasks.disc.model import DiscModel
from filtrax.lab.tasks.disc.task import DiscTask

__all__ = ["DiscModel", "DiscTask"]
