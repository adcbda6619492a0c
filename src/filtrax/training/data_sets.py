"""Several data sets of the same shape, and the members of an ensemble that train on each.

The first members belong to the first data set, the next ones to the second, and so on.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from filtrax.filters._run import check_known_numbers, check_sequence
from filtrax.state_space import StateSpaceModel
from filtrax.training.evaluation import members
from filtrax.trajectory import TIMED, Trajectory, known_states


def as_data_sets(data: Trajectory | Sequence[Trajectory], model: Any) -> list[Trajectory]:
    """One data set or several as a list, or an error that says what is wrong with them."""
    sets = [data] if isinstance(data, Trajectory) else list(data)
    return [as_data_set(trajectories, model) for trajectories in sets]


def as_data_set(data: Trajectory, model: StateSpaceModel) -> Trajectory:
    """The data with a leading axis, or an error that says what is wrong with them.

    NumPy's arrays stay what they are: images may be too many to be on a device twice.
    """
    if not isinstance(data, Trajectory):
        raise TypeError(f"`data` must be a Trajectory, got a {type(data).__name__}.")
    data = jax.tree.map(lambda leaf: leaf if eqx.is_array(leaf) else np.asarray(leaf), data)
    if data.initial.ndim == 1:
        data = jax.tree.map(lambda leaf: leaf[None], data)
    size = model.state_space.size
    if data.initial.ndim != 2 or size not in (None, data.initial.shape[1]):
        raise ValueError(
            f"`data.initial` must have shape (trajectories, {size or 'components'}), got "
            f"{data.initial.shape}."
        )
    count, size = data.initial.shape
    for leaf in jax.tree.leaves(data):
        if leaf.shape[:1] != (count,):
            raise ValueError(
                f"All arrays of `data` must have a leading axis of {count} trajectories like "
                f"`data.initial`, got an array of shape {leaf.shape}."
            )
    if data.states is not None and data.states.shape[-1] != size:
        raise ValueError(
            f"`data.states` must have {size} components, got an array of shape {data.states.shape}."
        )
    flat = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
        {name: getattr(data, name) for name in TIMED},
    )
    axes = ("trajectory", "step")
    check_known_numbers("data.inputs", data.inputs, axes)
    if data.states is not None:
        _, labels = known_states(data.states, data.labelled)
        check_known_numbers("data.states", data.states, axes, known=labels)
    check_sequence(**flat)
    return data


def check_data_sets(
    data: Sequence[Trajectory], validation: Sequence[Trajectory], num_members: int
) -> None:
    """Raises unless there are equally many sets of each kind, and of members on each.

    There may also be none for validation.
    """
    if len(validation) not in (0, len(data)) or not data or num_members % len(data):
        raise ValueError(
            "There must be as many data sets to train on as for validation, and a multiple of "
            f"that many members: got {len(data)} and {len(validation)} data sets and "
            f"{num_members} members."
        )
    for sets in filter(None, (data, validation)):
        shapes = [jax.tree.map(jnp.shape, trajectories) for trajectories in sets]
        if any(shape != shapes[0] for shape in shapes):
            raise ValueError(
                "All data sets of an ensemble must have arrays of the same shapes; train on "
                "others separately (`filtrax reproduce --data-sets 1` does)."
            )


def stacked(data_sets: Sequence[PyTree]) -> PyTree:
    """One data set on the device, or several as one, with a leading axis.

    NumPy's arrays are put together before they are moved, so that a device holds no image twice.
    """
    if not data_sets[1:]:
        return jax.device_put(data_sets[0])
    columns = list(zip(*map(jax.tree.leaves, data_sets), strict=True))
    on_host = [all(isinstance(leaf, np.ndarray) for leaf in column) for column in columns]
    on_device = iter(_stack([c for c, host in zip(columns, on_host, strict=True) if not host]))
    both = zip(columns, on_host, strict=True)
    leaves = [jax.device_put(np.stack(c)) if host else next(on_device) for c, host in both]
    return jax.tree.unflatten(jax.tree.structure(data_sets[0]), leaves)


@jax.jit  # one program, and not one for every array
def _stack(columns: Sequence[Sequence[jax.Array]]) -> list[jax.Array]:
    return [jnp.stack(arrays) for arrays in columns]


def members_of_set(tree: Any, parts: int, part: int) -> Any:
    """The members of an ensemble that belong to one of several data sets."""
    if parts == 1:
        return tree

    def own(leaf: Any) -> Any:
        size = leaf.shape[0] // parts
        return leaf[part * size : (part + 1) * size]

    return jax.tree.map(lambda leaf: own(leaf) if eqx.is_array(leaf) else leaf, tree)


def num_sets(data: Trajectory) -> int:
    """The number of data sets that are stacked."""
    return data.initial.shape[0] if data.initial.ndim == 3 else 1


def first_set(data: Trajectory) -> Trajectory:
    """The first of the data sets that are stacked."""
    return jax.tree.map(lambda leaf: leaf[0], data) if data.initial.ndim == 3 else data


def on_each(member: Callable, num_sets: int, in_turn: bool) -> Callable:
    """`function(data, everyone)`, which calls `member(data, own)` for each member with its data.

    All members of a data set share the results that depend on the data alone, unless they are
    computed in turn.
    """
    of_set = functools.partial(_in_turn, member)
    if not in_turn:
        of_set = eqx.filter_vmap(member, in_axes=(None, members))
    return of_set if num_sets == 1 else functools.partial(_on_sets, of_set, num_sets)


def _in_turn(member: Callable, data: Trajectory, everyone: Any) -> Any:
    arrays, others = eqx.partition(everyone, eqx.is_array)
    return jax.lax.map(lambda own: member(data, eqx.combine(own, others)), arrays)


def _on_sets(of_set: Callable, num_sets: int, data: Trajectory, everyone: Any) -> Any:
    def fold(leaf: Any) -> Any:
        return leaf.reshape(num_sets, -1, *leaf.shape[1:]) if eqx.is_array(leaf) else leaf

    folded = eqx.filter_vmap(of_set, in_axes=members)(data, jax.tree.map(fold, everyone))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), folded)
