"""Several data sets of the same shape, and the members of an ensemble that train on each.

The first members belong to the first data set, the next ones to the second, and so on.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from filtrax.training._fit import as_data_set
from filtrax.training.evaluation import members
from filtrax.trajectory import Trajectory


def as_data_sets(data: Trajectory | Sequence[Trajectory], model: Any) -> list[Trajectory]:
    """One data set or several as a list, or an error that says what is wrong with them."""
    sets = [data] if isinstance(data, Trajectory) else list(data)
    return [as_data_set(trajectories, model) for trajectories in sets]


def check_data_sets(data: list[Trajectory], validation: list[Trajectory], num_members: int) -> None:
    """Raises unless there are equally many sets of each kind, and of members on each."""
    if len(data) != len(validation) or not data or num_members % len(data):
        raise ValueError(
            "There must be as many data sets to train on as for validation, and a multiple of "
            f"that many members: got {len(data)} and {len(validation)} data sets and "
            f"{num_members} members."
        )
    for sets in (data, validation):
        shapes = [jax.tree.map(jnp.shape, trajectories) for trajectories in sets]
        if any(shape != shapes[0] for shape in shapes):
            raise ValueError(
                "All data sets of an ensemble must have arrays of the same shapes; train on "
                "others separately (`filtrax reproduce --data-sets 1` does)."
            )


def stacked(data_sets: Sequence[PyTree]) -> PyTree:
    """The data sets as one on the device, with a leading axis.

    NumPy's arrays are put together before they are moved, so that a device holds no image twice.
    """
    columns = list(zip(*map(jax.tree.leaves, data_sets), strict=True))
    on_host = [all(isinstance(leaf, np.ndarray) for leaf in column) for column in columns]
    on_device = iter(_stack([c for c, host in zip(columns, on_host, strict=True) if not host]))
    both = zip(columns, on_host, strict=True)
    leaves = [jax.device_put(_stack_on_host(c)) if host else next(on_device) for c, host in both]
    return jax.tree.unflatten(jax.tree.structure(data_sets[0]), leaves)


def _stack_on_host(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack(arrays) if arrays[1:] else arrays[0][None]  # a view of one, and no copy


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


def first_set(data: Trajectory) -> Trajectory:
    """The first of several stacked data sets."""
    return jax.tree.map(lambda leaf: leaf[0], data)


def on_each(
    member: Callable, data: Trajectory, everyone: tuple, num_sets: int, *, in_turn: bool = False
) -> Any:
    """`member(data, *arguments)` of every member with its data set, at once or in turn.

    At once, all members of a data set share the results that depend on the data alone.
    """

    def of_set(data, *arguments):
        count = len(arguments)
        if in_turn:
            arrays, others = eqx.partition(arguments, eqx.is_array)
            return jax.lax.map(lambda own: member(data, *eqx.combine(own, others)), arrays)
        return eqx.filter_vmap(member, in_axes=(None, *[members] * count))(data, *arguments)

    if num_sets == 1:
        return of_set(first_set(data), *everyone)

    def fold(leaf: Any) -> Any:
        return leaf.reshape(num_sets, -1, *leaf.shape[1:]) if eqx.is_array(leaf) else leaf

    folded = eqx.filter_vmap(of_set, in_axes=members)(data, *jax.tree.map(fold, everyone))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), folded)
