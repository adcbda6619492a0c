"""The steps of an epoch of an ensemble, as one compiled program.

All members see the same sub-sequences in the same order; what they do with them is their own.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int

from filtrax import _hooks
from filtrax._types import Key, Keys
from filtrax.training.data_sets import first_set, on_each
from filtrax.training.devices import Placement
from filtrax.training.evaluation import members_in_turn
from filtrax.training.stages import Stage
from filtrax.training.step import Learner, Recipe, choose, update
from filtrax.trajectory import Trajectory, perturb, random_subsequence

ORDER_SEED = 2021
"""The seed of the order of batches, the same for all members and for runs with other seeds."""


@eqx.filter_jit
def train_steps(
    stage: Stage,
    rest: Any,
    data: Trajectory,
    readings: Any,
    learner: Learner,
    finite: Bool[Array, " m"],
    state: tuple[Array, Array, Array],
    first: Int[Array, ""],
    count: int,
    num_epochs: Int[Array, ""],
    keys: Keys,
    placement: Placement,
    accelerate: bool,
) -> tuple[Learner, Bool[Array, " m"], tuple[Array, Array]]:
    """Some steps of an epoch, from the one numbered `first` on.

    **Arguments:**

    - `stage`: with an axis of members in its numbers.
    - `rest`: filters and models without their trained arrays.
    - `data`: the data sets, stacked.
    - `readings`: features of all members in the place of the readings, or None.
    - `learner`: parameters and memory of all members.
    - `finite`: members whose losses and gradients have all been finite; the others stay as they
      are.
    - `state`: factor of the learning rate and number of rollbacks of each member, and the epoch.
    - `first`: the first step.
    - `count`: the number of steps; a single step is not put into a loop.
    - `num_epochs`: the number of epochs of the whole stage.
    - `keys`: one for each member.
    - `placement`: the devices of members and batches.
    - `accelerate`: true if loops may be replaced by faster programs.

    **Returns:**

    Learner and `finite` afterwards, and the losses and norms of gradients of each step.
    """
    rates, rollbacks, epoch = state
    num_sets, total, num_steps = jax.tree.leaves(data.readings)[0].shape[:3]
    per_trajectory = num_steps // stage.length
    steps = stage.steps_per_epoch(first_set(data))
    order_key = jr.fold_in(jr.key(ORDER_SEED), epoch)
    order = jr.permutation(order_key, total * per_trajectory) // per_trajectory

    def step(carry, index):
        learner, finite = carry
        number = epoch * steps + index
        progress = (number / (num_epochs * steps)).astype(data.initial.dtype)
        numbers = jax.lax.dynamic_slice_in_dim(order, index * stage.batch_size, stage.batch_size)
        cut_key = jr.fold_in(order_key, index)

        def member(data, stage, rest, learner, readings, rate, rollbacks, finite, key):
            key = jr.fold_in(jr.fold_in(key, rollbacks), number)
            batch = placement.batch(cut_batch(data, readings, numbers, stage, key=cut_key))
            perturbation = _Perturbation(stage.perturbed)
            recipe = Recipe(stage.objective, stage.optimizer, perturbation, stage.clip_norm)
            rate = -rate * stage.rate(number, progress)  # down the gradient
            new, outcome = update(recipe, rest, learner, batch, progress, rate=rate, key=key)
            return choose(finite, new, learner), finite & outcome.finite, outcome

        everyone = (stage, rest, learner, readings, rates, rollbacks, finite, keys)
        in_turn = members_in_turn(rest[1])
        learner, finite, outcome = on_each(member, data, everyone, num_sets, in_turn=in_turn)
        return (learner, finite), (outcome.loss, outcome.gradient_norm)

    carry = (learner, finite)
    with _hooks.acceleration(accelerate):
        if count == 1:
            carry, outcomes = step(carry, first)
            outcomes = jax.tree.map(lambda leaf: leaf[None], outcomes)
        else:
            carry, outcomes = jax.lax.scan(step, carry, first + jnp.arange(count))
    return *placement.results(carry), outcomes


class _Perturbation(eqx.Module):
    """Moves the initial state towards a draw from the prior, by a part of the way."""

    part: Array

    def __call__(self, trajectory: Trajectory, key: Key) -> Trajectory:
        drawn = perturb(trajectory, key=key).initial
        initial = trajectory.initial + self.part * (drawn - trajectory.initial)
        return dataclasses.replace(trajectory, initial=initial)


def cut_batch(
    data: Trajectory, readings: Any, numbers: Int[Array, " b"], stage: Stage, *, key: Key
) -> Trajectory:
    """Sub-sequences of the numbered trajectories, drawn and changed alike for all members."""
    if readings is not None:
        data = dataclasses.replace(data, readings=readings)
    batch = jax.tree.map(lambda leaf: leaf[numbers], data)
    cut = lambda trajectory, key: random_subsequence(trajectory, stage.length, key=key)  # noqa: E731
    batch = jax.vmap(cut)(batch, jr.split(key, numbers.size))
    if stage.augment is None:
        return batch
    return jax.vmap(stage.augment)(batch, jr.split(jr.fold_in(key, 1), numbers.size))
