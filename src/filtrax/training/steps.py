"""Steps of gradient descent, the one compiled loop under `fit` and `Training`.

All members of an ensemble see the same sub-sequences in the same order; what they do with them is
their own.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from filtrax import _hooks
from filtrax._types import Key, Keys
from filtrax.training.data_sets import first_set, num_sets, on_each
from filtrax.training.devices import Placement
from filtrax.training.evaluation import members_in_turn
from filtrax.training.protocols import seen_by
from filtrax.training.stages import Stage
from filtrax.trajectory import Trajectory, perturb, random_subsequence


class Learner(eqx.Module):
    """The trained parameters and the optimizer's memory, which a step hands to the next."""

    parameters: Any
    memory: Any


class Steps(eqx.Module):
    """Losses and gradients of training steps.

    `gradient_norm` is the norm before clipping, `clipped_norm` the one the optimizer saw.
    """

    loss: Float[Array | np.ndarray, "*steps"]
    gradient_norm: Float[Array | np.ndarray, "*steps"]
    clipped_norm: Float[Array | np.ndarray, "*steps"]


class Course(eqx.Module):
    """Everything that stays the same in all steps of a stage.

    **Attributes:**

    - `stage`: with an axis of members in its numbers.
    - `rest`: filters and models without their trained arrays.
    - `data`: the data sets; several are stacked.
    - `readings`: features of all members in the place of the readings, or None.
    - `order_key`: for the order of batches, the same for all members.
    - `num_steps`, `per_epoch`: the number of steps of the whole stage, and of an epoch.
    - `placement`: the devices of members and batches.
    """

    stage: Stage
    rest: Any
    data: Trajectory
    readings: Any
    order_key: Key
    num_steps: Int[Array, ""]
    per_epoch: Int[Array, ""]
    placement: Placement


@eqx.filter_jit
def train_steps(
    course: Course,
    learner: Learner,
    finite: Bool[Array, " m"],
    factors: Float[Array, " m"],
    keys: Keys,
    epoch: Int[Array, ""],
    done: Int[Array, ""],
    count: int | Int[Array, ""],
    most: int,
    accelerate: bool,
) -> tuple[Learner, Bool[Array, " m"], Steps]:
    """Some steps of all members.

    **Arguments:**

    - `learner`: parameters and memory of all members.
    - `finite`: members whose losses and gradients have all been finite; the others stay as they
      are.
    - `factors`: multiply the learning rate of each member.
    - `keys`: one for each member.
    - `epoch`, `done`: the present epoch, and the number of its steps that are done.
    - `count`: the number of steps, at most `most`. An array serves all numbers by one program.
    - `accelerate`: true if loops may be replaced by faster programs.

    **Returns:** learner and `finite` afterwards, and losses and norms, of which the first `count`
    of `most` are made.
    """
    stage, dtype = course.stage, course.data.initial.dtype
    first = course.per_epoch * epoch + done
    order = _Order(course, first, most)

    def step(index, carry):
        learner, finite, steps = carry
        number = first + index
        progress = (number / course.num_steps).astype(dtype)
        numbers, batch_key = order.batch(number)

        def member(data, own):
            stage, rest, learner, readings, factor, finite, key = own
            batch = cut_batch(data, readings, numbers, stage, key=batch_key)
            batch = course.placement.batch(batch)
            loss, gradient = eqx.filter_value_and_grad(_loss)(
                learner.parameters, rest, stage, batch, progress, jr.fold_in(key, number)
            )
            norm = optax.tree.norm(gradient)
            # Optax mixes integer counters and floats, which strict promotion (a user's choice)
            # forbids.
            with jax.numpy_dtype_promotion("standard"):
                clipped = stage.clip(gradient, norm)
                new = stage.descend(
                    clipped, learner.memory, learner.parameters, number, progress, factor
                )
            finite = finite & jnp.isfinite(loss) & jnp.isfinite(norm)
            outcome = Steps(loss, norm, optax.tree.norm(clipped))
            return choose(finite, Learner(*new), learner), finite, outcome

        each = member if alone else on_each(member, num_sets(course.data), in_turn)
        everyone = (stage, rest, learner, readings, factors, finite, keys)
        learner, finite, outcome = each(course.data, everyone)
        record = lambda all, one: all.at[..., index].set(one.astype(all.dtype))  # noqa: E731
        return learner, finite, jax.tree.map(record, steps, outcome)

    alone, in_turn = finite.shape[0] == 1, members_in_turn(course.rest[1])
    nothing = jnp.full((finite.shape[0], most), jnp.nan, dtype)
    carry = (learner, finite, Steps(nothing, nothing, nothing))
    everything = (stage, course.rest, course.readings, factors, keys, carry)
    if alone:  # an axis of one member costs some percent of a step on a CPU
        everything = without_members(everything)
    stage, rest, readings, factors, keys, carry = everything
    with _hooks.acceleration(accelerate):
        # XLA's convolutions are several times slower inside of its loops on a CPU.
        carry = step(0, carry) if most == 1 else jax.lax.fori_loop(0, count, step, carry)
    return course.placement.results(with_members(carry) if alone else carry)


class _Order:
    """The order of batches: without replacement, and another one in each pass over the data."""

    def __init__(self, course: Course, first: Int[Array, ""], most: int):
        stage, data = course.stage, first_set(course.data)
        self.size, self.per_pass = stage.batch_size, stage.steps_per_epoch(data)
        count = stage.subsequences(data)
        per_trajectory = count // data.initial.shape[0]
        # Calls of that many steps begin where a pass does, or several of them share one.
        passes = 1 if self.per_pass % most == 0 else (most - 1) // self.per_pass + 2
        self.first = first // self.per_pass
        fold = lambda number: jr.fold_in(course.order_key, number)  # noqa: E731
        self.keys = jax.vmap(fold)(self.first + jnp.arange(passes))
        draw = lambda key: jr.permutation(key, count) // per_trajectory  # noqa: E731
        self.orders = jax.vmap(draw)(self.keys)

    def batch(self, number: Int[Array, ""]) -> tuple[Int[Array, " b"], Key]:
        """The trajectories of the batch of a step, and a key for what all members share."""
        row, index = number // self.per_pass - self.first, number % self.per_pass
        numbers = jax.lax.dynamic_slice_in_dim(self.orders[row], index * self.size, self.size)
        return numbers, jr.fold_in(self.keys[row], index)


def cut_batch(
    data: Trajectory, readings: Any, numbers: Int[Array, " b"], stage: Stage, *, key: Key
) -> Trajectory:
    """Sub-sequences of the numbered trajectories, drawn and changed alike for all members."""
    if readings is not None:
        data = dataclasses.replace(data, readings=readings)
    batch = jax.tree.map(lambda leaf: leaf[numbers], data)
    if stage.length < jax.tree.leaves(data.readings)[0].shape[1]:
        cut = lambda trajectory, key: random_subsequence(trajectory, stage.length, key=key)  # noqa: E731
        batch = jax.vmap(cut)(batch, jr.split(key, numbers.size))
    if stage.augment is None:
        return batch
    return jax.vmap(stage.augment)(batch, jr.split(jr.fold_in(key, 1), numbers.size))


def _loss(parameters, rest, stage, batch, progress, key):
    """The mean objective of a batch."""
    filt, model = seen_by(stage.objective, *eqx.combine(parameters, rest))
    keys = jax.vmap(jr.split)(jr.split(key, batch.initial.shape[0]))
    if stage.perturbed is not None:
        moved = jax.vmap(lambda trajectory, key: perturb(trajectory, key=key))(batch, keys[:, 0])
        initial = batch.initial + stage.perturbed * (moved.initial - batch.initial)
        batch = dataclasses.replace(batch, initial=initial)
    axes = (None, None, 0, None, 0)
    objective = eqx.filter_vmap(stage.objective, in_axes=axes)
    return objective(filt, model, batch, progress, keys[:, 1]).mean()


def with_members(tree: Any) -> Any:
    """All arrays with an axis of a single member."""
    return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, tree)


def without_members(tree: Any) -> Any:
    """All arrays without their axis of a single member."""
    return jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, tree)


def choose(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One of two trees of arrays, by a condition that may be traced."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
