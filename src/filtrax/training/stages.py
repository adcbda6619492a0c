"""Stages of training: objective, data and optimizer."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from filtrax.training.evaluation import Score
from filtrax.training.objectives import Objective
from filtrax.training.optimizers import comparable
from filtrax.training.step import Augment
from filtrax.trajectory import Trajectory


def _as_number(value: bool | float | Array) -> float | Array:
    return float(value) if isinstance(value, bool) else value


class Stage(eqx.Module):
    """Objective, data and optimizer of a stage of training.

    Numbers are traced, so that one compiled program serves all their values; each may be an
    array with one entry per member.

    **Attributes:**

    - `objective`: the function to minimize.
    - `score`: the numbers that validation computes; the entry "loss" chooses the best state.
    - `train`: the parts to train, as in `fit`.
    - `num_epochs`: an epoch draws each trajectory as often as `length` fits into it.
    - `length`: the number of steps of the sub-sequences that are drawn.
    - `batch_size`: the number of sub-sequences in a batch.
    - `perturbed`: the part of the way that their initial states move towards a draw from the
      prior: 1 is the draw itself, 0 leaves them.
    - `learning_rate`: its largest value. It grows linearly over `warmup_steps` and falls with
      the cosine of the progress; `decay` 0 keeps it constant instead.
    - `clip_norm`: gradients longer than this are shortened to it.
    - `augment`: changes the sub-sequences that are drawn, the same for all members.
    """

    objective: Objective
    score: Score
    train: tuple[str, ...] = eqx.field(default=("model", "filter"), static=True)
    num_epochs: int = eqx.field(default=30, static=True)
    length: int = eqx.field(default=10, static=True)
    batch_size: int = eqx.field(default=32, static=True)
    optimizer: optax.GradientTransformation = eqx.field(
        default=optax.scale_by_adam(), converter=comparable
    )
    perturbed: bool | float | Array = eqx.field(default=1.0, converter=_as_number)
    learning_rate: float | Array = 1e-3
    warmup_steps: float | Array = 500.0
    decay: float | Array = 1.0
    clip_norm: float | Array = 1.0
    augment: Augment | None = eqx.field(default=None, static=True)

    def rate(self, step: Int[Array, ""], progress: Float[Array, ""]) -> Float[Array, ""]:
        """The learning rate of a step."""
        warm = jnp.minimum((step + 1).astype(progress.dtype) / self.warmup_steps, 1.0)
        cosine = 0.5 * (1 + jnp.cos(jnp.pi * progress))
        return self.learning_rate * warm * (1 - self.decay * (1 - cosine))

    def steps_per_epoch(self, data: Trajectory) -> int:
        """The number of batches of an epoch."""
        count, num_steps = jax.tree.leaves(data.readings)[0].shape[:2]
        return count * (num_steps // self.length) // self.batch_size

    def check(self, data: Trajectory) -> None:
        """Raises if the stage cannot train on these data."""
        count, num_steps = jax.tree.leaves(data.readings)[0].shape[:2]
        if not 1 <= self.length <= num_steps:
            raise ValueError(
                f"`length` must be between 1 and the {num_steps} steps of the trajectories, "
                f"got {self.length}."
            )
        if self.num_epochs < 1:
            raise ValueError(f"`num_epochs` must be at least 1, got {self.num_epochs}.")
        available = count * (num_steps // self.length)
        if not 1 <= self.batch_size <= available:
            raise ValueError(
                f"`batch_size` must be between 1 and the {available} sub-sequences of an epoch, "
                f"got {self.batch_size}."
            )

    def for_members(self, count: int) -> "Stage":
        """The stage with all its numbers as arrays that have one entry per member."""

        def spread(leaf: Any) -> Any:
            if isinstance(leaf, float):
                leaf = jnp.asarray(leaf)
            return jnp.broadcast_to(leaf, (count,)) if eqx.is_inexact_array(leaf) else leaf

        return jax.tree.map(spread, self)

    def without_epochs(self) -> "Stage":
        """The stage as one epoch sees it: their number is traced, not compiled in."""
        return dataclasses.replace(self, num_epochs=0)
