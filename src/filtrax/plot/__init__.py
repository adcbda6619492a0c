"""Pictures of tracks, uncertainty and training, on Axes of matplotlib.

Each function draws on the Axes it is given, or makes some, and returns them. matplotlib is imported
by the first call, not with this package.
"""

from filtrax.plot._calibration import coverage, nees, nis, whiteness
from filtrax.plot._learning import learning_curves
from filtrax.plot._rerun import to_rerun
from filtrax.plot._series import errors, states
from filtrax.plot._tracks import particles, track

__all__ = [
    "coverage",
    "errors",
    "learning_curves",
    "nees",
    "nis",
    "particles",
    "states",
    "to_rerun",
    "track",
    "whiteness",
]
