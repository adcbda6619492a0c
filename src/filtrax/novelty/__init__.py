"""Novelty: a warning of readings that are unlike the training data, and a sensor that heeds it.

Nothing is trained here. A detector is a mean and a covariance of what a trained encoder makes of
the training data, and a threshold (Lee et al. 2018, "A Simple Unified Framework for Detecting
Out-of-Distribution Samples and Adversarial Attacks").
"""

from filtrax.novelty.detector import Mahalanobis, Novelty, auroc
from filtrax.novelty.guard import Describe, GuardedSensor, fit_novelty, novelty_of

__all__ = [
    "Describe",
    "GuardedSensor",
    "Mahalanobis",
    "Novelty",
    "auroc",
    "fit_novelty",
    "novelty_of",
]
