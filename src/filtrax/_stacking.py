"""Mapping over several modules, in one program where they are alike."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def map_trees(function: Callable[..., Any], trees: Sequence[Any], *arguments: Any) -> Any:
    """`function(tree, argument, ...)` for each tree, with results on a leading axis.

    Arguments have such an axis, too. Trees that differ in numbers alone are one mapped program, in
    which what they share stays shared; others are programs of their own.
    """
    stacked = _stack(trees)
    if stacked is not None:
        differing, rebuild = stacked
        mapped = lambda numbers, *others: function(rebuild(numbers), *others)  # noqa: E731
        return jax.vmap(mapped, axis_size=len(trees))(differing, *arguments)
    results = [
        function(tree, *jax.tree.map(lambda leaf, i=i: leaf[i], arguments))
        for i, tree in enumerate(trees)
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)


def _stack(trees: Sequence[Any]) -> tuple[list[Array], Callable[[list[Array]], Any]] | None:
    """The arrays in which trees differ, stacked, and a function from one entry of each to a tree.

    None if the trees differ in more than arrays of one shape and dtype.
    """
    flat, structures = zip(*(jax.tree.flatten(tree) for tree in trees), strict=True)
    if any(structure != structures[0] for structure in structures):
        return None
    places, stacks = [], []
    for place, column in enumerate(zip(*flat, strict=True)):
        if all(_same(leaf, column[0]) for leaf in column):
            continue
        kinds = {_kind(leaf) for leaf in column}
        if None in kinds or len(kinds) > 1:
            return None
        places.append(place)
        stacks.append(jnp.stack(column))

    def rebuild(numbers: list[Array]) -> Any:
        own = dict(zip(places, numbers, strict=True))
        leaves = [own.get(place, leaf) for place, leaf in enumerate(flat[0])]
        return jax.tree.unflatten(structures[0], leaves)

    return stacks, rebuild


def _kind(leaf: Any) -> tuple[tuple[int, ...], Any] | None:
    """Shape and type of an array; None for anything else."""
    return (leaf.shape, leaf.dtype) if isinstance(leaf, jax.Array | np.ndarray) else None


def _same(leaf: Any, other: Any) -> bool:
    """Tells if two leaves are the same array, or equal functions or numbers."""
    return leaf is other or (_kind(leaf) is None and _kind(other) is None and leaf == other)
