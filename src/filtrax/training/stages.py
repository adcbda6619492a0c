"""Stages of training: objective, data and optimizer."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from filtrax._types import Scalar
from filtrax.training.optimizers import comparable
from filtrax.training.protocols import Augmentation, Objective, Score
from filtrax.trajectory import Trajectory


def _as_number(value: bool | float | Array | None) -> float | Array | None:
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
    - `optimizer`: any of Optax. With a `learning_rate` it gives the direction alone; without one
      (None) it is complete, like `optax.adam(1e-3)`.
    - `perturbed`: the part of the way that their initial states move towards a draw from the
      prior: 1 is the draw itself, 0 leaves them; None draws nothing.
    - `learning_rate`: its largest value. It grows linearly over `warmup_steps` and falls with
      the cosine of the progress; `decay` 0 keeps it constant instead.
    - `clip_norm`: gradients longer than this are shortened to it; None leaves them.
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
    perturbed: bool | float | Array | None = eqx.field(default=1.0, converter=_as_number)
    learning_rate: float | Array | None = 1e-3
    warmup_steps: float | Array = 500.0
    decay: float | Array = 1.0
    clip_norm: float | Array | None = 1.0
    augment: Augmentation | None = None

    def rate(self, step: Int[Array, ""], progress: Float[Array, ""]) -> Float[Array, ""]:
        """The learning rate of a step."""
        assert self.learning_rate is not None
        # Optax's schedules count steps in Python's integers; here time is a part of the whole.
        warmup = optax.linear_schedule(0.0, 1.0, 1)
        cosine = optax.cosine_decay_schedule(self.learning_rate, 1, alpha=1.0 - self.decay)
        warm = warmup((step + 1).astype(progress.dtype) / self.warmup_steps)
        return jnp.asarray(warm * cosine(progress))

    def clip(self, gradient: Any, norm: Scalar) -> Any:
        """The gradient, shortened to `clip_norm`."""
        if self.clip_norm is None:
            return gradient
        # Optax needs one type for all leaves and for the norm.
        wide = jax.tree.map(lambda leaf: leaf.astype(norm.dtype), gradient)
        largest = jnp.asarray(self.clip_norm, norm.dtype)
        short, _ = optax.clip_by_global_norm(largest).update(wide, optax.EmptyState())
        return jax.tree.map(lambda new, old: new.astype(old.dtype), short, gradient)

    def descend(
        self,
        gradient: Any,
        memory: Any,
        parameters: Any,
        step: Int[Array, ""],
        progress: Float[Array, ""],
        factor: Scalar,
    ) -> tuple[Any, Any]:
        """Parameters and the optimizer's memory after a step; `factor` shortens the step."""
        updates, memory = self.optimizer.update(gradient, memory, parameters)
        rate = factor if self.learning_rate is None else -factor * self.rate(step, progress)
        updates, _ = optax.scale(rate).update(updates, optax.EmptyState())
        return optax.apply_updates(parameters, updates), memory

    def steps_per_epoch(self, data: Trajectory) -> int:
        """The number of batches of an epoch."""
        return self.subsequences(data) // self.batch_size

    def subsequences(self, data: Trajectory) -> int:
        """The number of sub-sequences of an epoch."""
        count, num_steps = jax.tree.leaves(data.readings)[0].shape[:2]
        return count * (num_steps // self.length)

    def check(self, data: Trajectory) -> None:
        """Raises if the stage cannot train on these data."""
        num_steps = jax.tree.leaves(data.readings)[0].shape[1]
        if not 1 <= self.length <= num_steps:
            raise ValueError(
                f"`length` must be between 1 and the {num_steps} steps of the trajectories, "
                f"got {self.length}."
            )
        if self.num_epochs < 1:
            raise ValueError(f"`num_epochs` must be at least 1, got {self.num_epochs}.")
        available = self.subsequences(data)
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
