"""Members that objectives, scores and augmentations declare.

All of them may be plain functions, which count as classes that keep the defaults.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from filtrax._given import unwrap
from filtrax._types import Key, Scalar
from filtrax.filters import AbstractFilter
from filtrax.state_space import StateSpaceModel
from filtrax.trajectory import Trajectory

Objective = Callable[[AbstractFilter, StateSpaceModel, Trajectory, Scalar, Key], Scalar]
"""`objective(filt, model, trajectory, progress, key)`; `progress` runs from 0 to 1."""

Score = Callable[[AbstractFilter, StateSpaceModel, Trajectory, Key], PyTree]
"""`score(filt, model, trajectory, key)`: any tree of arrays, computed for one trajectory."""

Augmentation = Callable[[Trajectory, Key], Trajectory]
"""`augment(trajectory, key)`: the trajectory with something changed, for training."""


class AbstractCriterion(eqx.Module):
    """The needs of an objective or a score."""

    @property
    def needs_readings(self) -> bool:
        """True if it may look at readings; otherwise no sensor has to run for it."""
        return True

    @property
    def sees_given(self) -> bool:
        """True if it tells given arrays (`filtrax.given`) from others, like weight decay."""
        return False

    @abc.abstractmethod
    def __call__(self, *arguments: Any, **options: Any) -> PyTree:
        """The value for one trajectory, from the arguments of an `Objective` or a `Score`."""


class AbstractObjective(AbstractCriterion):
    """An objective that declares what it uses, besides its `__call__`."""


class AbstractScore(AbstractCriterion):
    """A score that declares what it uses, besides its `__call__`."""


class AbstractAugmentation(abc.ABC):
    """An augmentation that declares what it leaves as it is."""

    @property
    def keeps_readings(self) -> bool:
        """True if readings and context stay the same, so that features can be computed once."""
        return False

    @abc.abstractmethod
    def __call__(self, trajectory: Trajectory, key: Key) -> Trajectory:
        """The changed trajectory."""


def needs_readings(criterion: Objective | Score) -> bool:
    """True for an objective, or a score, that may look at readings."""
    return criterion.needs_readings if isinstance(criterion, AbstractCriterion) else True


def sees_given(criterion: Objective | Score) -> bool:
    """True for an objective, or a score, that tells given arrays from others."""
    return criterion.sees_given if isinstance(criterion, AbstractCriterion) else False


def seen_by(criterion: Objective | Score, filt: Any, model: Any) -> tuple[Any, Any]:
    """The filter and the model as an objective, or a score, is to see them."""
    return (filt, model) if sees_given(criterion) else unwrap((filt, model))


def keeps_readings(augment: Augmentation | None) -> bool:
    """True if training data have the same readings in every epoch."""
    if isinstance(augment, AbstractAugmentation):
        return augment.keeps_readings
    return augment is None
