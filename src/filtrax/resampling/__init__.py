"""Resampling: particles in, equally many particles out.

Base schemes draw ancestors by inverting the distribution function of the weights (`Systematic`,
`Stratified`, `Multinomial`). Wrappers change what is drawn (`Soft`) or when (`EverySteps`,
`EffectiveSampleSize`), and go around each other.
"""

from filtrax.resampling.base import (
    AbstractAncestorResampler,
    AbstractResampler,
    NoResampling,
    offspring,
    older,
)
from filtrax.resampling.schemes import (
    AbstractPositionResampler,
    Multinomial,
    Stratified,
    Systematic,
)
from filtrax.resampling.soft import Soft
from filtrax.resampling.triggers import EffectiveSampleSize, EverySteps

__all__ = [
    "AbstractAncestorResampler",
    "AbstractPositionResampler",
    "AbstractResampler",
    "EffectiveSampleSize",
    "EverySteps",
    "Multinomial",
    "NoResampling",
    "Soft",
    "Stratified",
    "Systematic",
    "offspring",
    "older",
]
