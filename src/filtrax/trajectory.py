"""Trajectories: the sequences that filters are trained and tested on.

A data set is one `Trajectory` whose arrays all have a leading axis. The functions here work on
one trajectory and may be mapped (`jax.vmap`) over such a data set, except `stack` and `split`,
which make and take data sets.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from filtrax._checks import as_float, check_plain, keyword_only
from filtrax._types import Context, Key
from filtrax.beliefs import AbstractBelief, Gaussian
from filtrax.spaces import AbstractSpace, Euclidean

TIMED = ("inputs", "readings", "states", "observed", "labelled")
"""The parts of a trajectory that have a time axis."""


@keyword_only(
    "Trajectory(initial, initial_covariance, readings, *, inputs=None, states=None, ...)",
    controls="inputs",
    meaningless="undefined",
)
class Trajectory(eqx.Module):
    """One sequence of T steps.

    `readings[t]` is taken at `states[t]`, and `inputs[t]` is all that is known then: the process
    uses it on the way to `states[t]`, everything else there.

    **Attributes:**

    - `initial`, `initial_covariance`: mean and covariance of the belief before the first step.
    - `readings`: raw sensor data, a pytree of arrays with a leading time axis.
    - `inputs`: commands, time steps, places of landmarks: a pytree of arrays with a leading time
      axis, or None.
    - `states`: the true states, or None where there is no ground truth.
    - `observed`: which readings exist, per step or per step and component; for a stack of
      sensors a tuple of such masks. None: all.
    - `labelled`: which true states are known, per step or per step and component. None: all.
    - `context`: what is constant in the sequence.
    - `undefined`: components with no meaning here, like a circle's orientation. Their true value is
      zero, and no loss looks at them. None: none.
    """

    initial: Float[Array, "*b x"] = eqx.field(converter=as_float)
    initial_covariance: Float[Array, "*b x x"] = eqx.field(converter=as_float)
    inputs: PyTree = dataclasses.field(default=None, kw_only=True)
    readings: PyTree
    states: Float[Array, "*b t x"] | None = dataclasses.field(default=None, kw_only=True)
    observed: PyTree[Bool[Array, "..."]] | None = dataclasses.field(default=None, kw_only=True)
    labelled: Bool[Array, "..."] | None = dataclasses.field(default=None, kw_only=True)
    context: Context = dataclasses.field(default=None, kw_only=True)
    undefined: Bool[Array, "*b x"] | None = dataclasses.field(default=None, kw_only=True)

    def __check_init__(self):
        check_plain("readings", self.readings)
        check_plain("states", self.states)
        check_plain("inputs", self.inputs)

    @property
    def prior(self) -> Gaussian:
        """The belief before the first step."""
        return Gaussian(self.initial, self.initial_covariance)

    @property
    def num_steps(self) -> int:
        """The number of steps (of one trajectory, not of a data set)."""
        return jax.tree.leaves(self.readings)[0].shape[0]

    def known_states(self) -> tuple[Float[Array, "*b t x"], Bool[Array, "*b t x"]]:
        """The true states, zero where they are not labelled, and which components are.

        Undefined components are not labelled.
        """
        if self.states is None:
            raise ValueError("This needs true states, but `states` of the trajectory is None.")
        states, labels = known_states(self.states, self.labelled)
        if self.undefined is None:
            return states, labels
        return known_states(states, labels & ~self.undefined[..., None, :])

    def complete(self) -> Bool[Array, "*b t"]:
        """Which true states are known in all components that are defined."""
        labels = self.known_states()[1]
        if self.undefined is not None:
            labels = labels | self.undefined[..., None, :]
        return labels.all(-1)


def known_states(
    states: Float[Array, "*b x"], labelled: Bool[Array, "..."] | None
) -> tuple[Float[Array, "*b x"], Bool[Array, "*b x"]]:
    """States with zeros where they are not labelled, and the mask per component.

    A mask has one entry per state, or one per component; no mask means that all are labelled.
    """
    if labelled is None:
        return states, jnp.ones(states.shape, bool)
    if labelled.ndim < states.ndim:
        labelled = labelled[..., None]
    labels = jnp.broadcast_to(labelled, states.shape)
    return jnp.where(labels, states, 0.0), labels


def subsequence(trajectory: Trajectory, start: int | Int[Array, ""], length: int) -> Trajectory:
    """The steps start, ..., start + length - 1.

    It begins at the true state before them, `states[start - 1]`, or for start 0 at the initial
    state, with the covariance of the initial state. `start` may be traced.
    """
    states, num_steps = trajectory.known_states()[0], trajectory.num_steps
    if not 1 <= length <= num_steps:
        raise ValueError(
            f"`length` must be between 1 and the {num_steps} steps of the trajectory, got {length}."
        )
    if isinstance(start, int) and not 0 <= start <= num_steps - length:
        raise ValueError(
            f"`start` must be between 0 and {num_steps - length}, so that {length} of "
            f"{num_steps} steps are left: got {start}."
        )
    start = jnp.asarray(start)
    initial = jnp.where(start == 0, trajectory.initial, states[jnp.maximum(start - 1, 0)])
    cut = _map_steps(lambda array: jax.lax.dynamic_slice_in_dim(array, start, length), trajectory)
    return dataclasses.replace(cut, initial=initial)


def windows(
    trajectory: Trajectory,
    length: int,
    *,
    stride: int | None = None,
    beliefs: AbstractBelief | None = None,
    space: AbstractSpace = Euclidean(),
) -> Trajectory:
    """A data set of windows of a trajectory, `stride` steps apart, or `length` if that is None.

    A window begins at a belief that a run of a filter had before its first step (`beliefs`, the
    result's), so that a recording without true states can be cut, too. Without `beliefs` it begins
    at the true state; windows that follow a state that is not labelled are then left out. The first
    window of all begins at the initial belief. Steps after the last whole window are left out.

    `space` is the model's `state_space`, which beliefs need that are no Gaussians.
    """
    count, stride = trajectory.num_steps, length if stride is None else stride
    if not 1 <= length <= count or stride < 1:
        raise ValueError(
            f"`length` must be between 1 and the {count} steps of the trajectory and `stride` at "
            f"least 1, got {length} and {stride}."
        )
    starts = np.arange(0, count - length + 1, stride)
    means, covariances, known = _beliefs_between_steps(trajectory, beliefs, space)
    starts = starts[known[starts]]
    steps = starts[:, None] + np.arange(length)
    cut = _map_steps(lambda array: jnp.asarray(array)[steps], trajectory)
    repeat = lambda leaf: jnp.broadcast_to(leaf, (len(starts), *jnp.shape(leaf)))  # noqa: E731
    return dataclasses.replace(
        cut,
        initial=means[starts],
        initial_covariance=covariances[starts],
        context=jax.tree.map(repeat, trajectory.context),
        undefined=jax.tree.map(repeat, trajectory.undefined),
    )


def _beliefs_between_steps(trajectory: Trajectory, beliefs: Any, space: AbstractSpace) -> Any:
    """Means and covariances before each step, and at which steps they are known."""
    first, spread = trajectory.initial[None], trajectory.initial_covariance[None]
    if beliefs is not None:
        moments = jax.vmap(lambda belief: belief.moments(space))(beliefs)
        means = jnp.concatenate([first, moments.mean])
        known = np.ones(len(means), bool)
        return means, jnp.concatenate([spread, moments.covariance]), known
    if trajectory.states is None:
        raise ValueError(
            "Windows of a trajectory without true states begin at beliefs: give "
            "`beliefs=run(...).beliefs`."
        )
    means = jnp.concatenate([first, trajectory.known_states()[0]])
    covariances = jnp.broadcast_to(spread, (len(means), *spread.shape[1:]))
    return means, covariances, np.append(True, trajectory.complete())


def random_subsequence(trajectory: Trajectory, length: int, *, key: Key) -> Trajectory:
    """A sub-sequence whose start is drawn uniformly from those that follow a known state."""
    complete = trajectory.complete()
    # Before the first step comes the initial state, which is always known.
    allowed = jnp.append(True, complete[:-1])[: max(complete.size - length, 0) + 1]
    start = jr.categorical(key, jnp.where(allowed, 0.0, -jnp.inf))
    return subsequence(trajectory, start, length)


def perturb(trajectory: Trajectory, *, key: Key) -> Trajectory:
    """Draws the initial state from N(initial, initial_covariance)."""
    return dataclasses.replace(trajectory, initial=trajectory.prior.sample(key=key))


def pad(trajectory: Trajectory, num_steps: int) -> Trajectory:
    """Appends steps that are neither observed nor labelled, up to `num_steps`."""
    missing = num_steps - trajectory.num_steps
    if missing < 0:
        raise ValueError(
            f"`num_steps` must be at least the {trajectory.num_steps} steps of the trajectory, "
            f"got {num_steps}."
        )
    all_steps = jnp.ones(trajectory.num_steps, bool)
    observed = all_steps if trajectory.observed is None else trajectory.observed
    labelled = all_steps if trajectory.labelled is None else trajectory.labelled

    def extend(array: Array) -> Array:
        return jnp.concatenate([array, jnp.zeros((missing, *array.shape[1:]), array.dtype)])

    masked = dataclasses.replace(trajectory, observed=observed, labelled=labelled)
    return _map_steps(extend, masked)


def stack(trajectories: Sequence[Trajectory]) -> Trajectory:
    """A data set of trajectories; shorter ones are padded to the longest."""
    if not trajectories:
        raise ValueError("`trajectories` must hold at least one trajectory, got none.")
    counts = {trajectory.num_steps for trajectory in trajectories}
    if len(counts) > 1:
        trajectories = [pad(trajectory, max(counts)) for trajectory in trajectories]
    observed = _alike([trajectory.observed for trajectory in trajectories], max(counts))
    labelled = _alike([trajectory.labelled for trajectory in trajectories], max(counts))
    undefined = [trajectory.undefined for trajectory in trajectories]
    if any(mask is not None for mask in undefined):
        no_component = jnp.zeros(trajectories[0].initial.shape, bool)
        undefined = [no_component if mask is None else mask for mask in undefined]
    trajectories = [
        dataclasses.replace(trajectory, observed=seen, labelled=labels, undefined=mask)
        for trajectory, seen, labels, mask in zip(
            trajectories, observed, labelled, undefined, strict=True
        )
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trajectories)


def split(data: Trajectory, sizes: Sequence[int], *, key: Key) -> tuple[Trajectory, ...]:
    """Shuffles a data set and cuts it into data sets of the given sizes."""
    total = data.initial.shape[0]
    if sum(sizes) > total or min(sizes, default=0) < 1:
        raise ValueError(
            f"`sizes` must be positive and sum to at most {total} trajectories, got {tuple(sizes)}."
        )
    order, parts, begin = jr.permutation(key, total), [], 0
    for size in sizes:
        members = order[begin : begin + size]
        parts.append(jax.tree.map(lambda leaf, members=members: leaf[members], data))
        begin += size
    return tuple(parts)


def _alike(masks: Sequence[Any], num_steps: int) -> list[Any]:
    """Masks of the same meaning, all as detailed as the most detailed among them."""
    if all(mask is None for mask in masks):
        return list(masks)
    widths = [len(mask) for mask in masks if isinstance(mask, tuple)]
    if widths:  # stacked sensors: one mask for each
        rows = [mask if isinstance(mask, tuple) else (mask,) * widths[0] for mask in masks]
        columns = [_alike(column, num_steps) for column in zip(*rows, strict=True)]
        return list(zip(*columns, strict=True))
    arrays = [jnp.ones(num_steps, bool) if mask is None else mask for mask in masks]
    widest = max(arrays, key=jnp.ndim).shape
    return [
        jnp.broadcast_to(array.reshape(array.shape + (1,) * (len(widest) - array.ndim)), widest)
        for array in arrays
    ]


def _map_steps(function: Callable[[Array], Array], trajectory: Trajectory) -> Trajectory:
    """Applies a function to every array that has a time axis."""
    steps = {name: jax.tree.map(function, getattr(trajectory, name)) for name in TIMED}
    return dataclasses.replace(trajectory, **steps)
