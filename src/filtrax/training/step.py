"""One step of gradient descent, which every way of training shares."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool

from filtrax._types import Key, Scalar
from filtrax.training.objectives import Objective, seen_by
from filtrax.trajectory import Trajectory

Augment = Callable[[Trajectory, Key], Trajectory]


class Recipe(eqx.Module):
    """Everything that is the same in all steps."""

    objective: Objective
    optimizer: optax.GradientTransformation
    augment: Augment | None = None
    clip_norm: float | Array | None = None


class Learner(eqx.Module):
    """The trained parameters and the optimizer's memory, which a step hands to the next."""

    parameters: Any
    memory: Any


class Outcome(eqx.Module):
    """Loss and gradient of a step.

    `gradient_norm` is the norm before clipping, `clipped_norm` the one the optimizer saw. Where
    `finite` is false the learner was left as it was.
    """

    loss: Scalar
    gradient_norm: Scalar
    clipped_norm: Scalar
    finite: Bool[Array, ""]


def update(
    recipe: Recipe,
    rest: Any,
    learner: Learner,
    batch: Trajectory,
    progress: Scalar,
    *,
    rate: Scalar | None = None,
    key: Key,
) -> tuple[Learner, Outcome]:
    """Improves the parameters on a batch; `rest` is the filter and model without them.

    `rate` multiplies what the optimizer proposes. A loss or gradient that is not finite changes
    nothing.
    """
    loss, gradient = eqx.filter_value_and_grad(_batch_loss)(
        learner.parameters, rest, recipe, batch, progress, key
    )
    norm = optax.tree.norm(gradient)
    clipped = _clip(gradient, norm, recipe.clip_norm)
    # Optax mixes integer counters and floats, which strict promotion (a user's choice) forbids.
    with jax.numpy_dtype_promotion("standard"):
        updates, memory = recipe.optimizer.update(clipped, learner.memory, learner.parameters)
    if rate is not None:
        updates = jax.tree.map(lambda leaf: leaf * rate.astype(leaf.dtype), updates)
    finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    new = Learner(eqx.apply_updates(learner.parameters, updates), memory)
    return choose(finite, new, learner), Outcome(loss, norm, optax.tree.norm(clipped), finite)


def choose(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One of two trees of arrays, by a condition that may be traced."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _batch_loss(parameters, rest, recipe, batch, progress, key):
    filt, model = seen_by(recipe.objective, *eqx.combine(parameters, rest))

    def of_trajectory(trajectory, key):
        augment_key, key = jr.split(key)
        if recipe.augment is not None:
            trajectory = recipe.augment(trajectory, augment_key)
        return recipe.objective(filt, model, trajectory, progress, key)

    return jax.vmap(of_trajectory)(batch, jr.split(key, batch.initial.shape[0])).mean()


def _clip(gradient: Any, norm: Array, largest: float | Array | None) -> Any:
    """The gradient, scaled to the largest norm where it is longer."""
    if largest is None:
        return gradient
    scale = jnp.where(norm > largest, largest / norm, 1.0)
    return jax.tree.map(lambda leaf: leaf * scale.astype(leaf.dtype), gradient)
