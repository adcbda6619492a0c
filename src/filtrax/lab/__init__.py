"""The laboratory: the tasks and experiments of Kloss et al. (2021), on top of the library.

The library never imports it. `register` makes a task, a filter, a sensor or a noise of one's own
known to configuration files.
"""

from filtrax.lab.registry import register

__all__ = ["register"]
