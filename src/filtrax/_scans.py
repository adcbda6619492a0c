"""Scans with an associative operation, in few dependent steps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

BLOCK = 32
"""Elements of a block, which are combined in turn while all blocks are at once."""


def associative_scan(combine: Callable[[Any, Any], Any], elements: Any, identity: Any) -> Any:
    """The combination of all elements up to each one: a₁, a₁ a₂, a₁ a₂ a₃, ...

    Blocks of elements are scanned in turn, all blocks at once; then the results of blocks by
    doubling; and each element is combined with all blocks before its own. `combine` appears three
    times in the program, whatever the number of elements, where `jax.lax.associative_scan` has it
    once for each level of its tree, which takes minutes to compile for an operation like ours.

    **Arguments:**

    - `combine`: takes an element and a later one.
    - `elements`: with a leading axis.
    - `identity`: an element that changes no other one.
    """
    count = jax.tree.leaves(elements)[0].shape[0]
    blocks = -(-count // BLOCK)

    def fold(leaf: Any, none: Any) -> Any:
        missing = jnp.broadcast_to(none, (blocks * BLOCK - count, *none.shape))
        return jnp.concatenate([leaf, missing]).reshape(blocks, BLOCK, *none.shape)

    folded = jax.tree.map(fold, elements, identity)
    within = _scan_in_turn(combine, folded, identity, blocks)
    whole = jax.tree.map(lambda leaf: leaf[:, -1], within)
    before = _shift(_scan_by_doubling(combine, whole, identity, blocks), 1, identity)
    joined = jax.vmap(jax.vmap(combine, (None, 0)))(before, within)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], joined)


def _scan_in_turn(combine: Any, folded: Any, identity: Any, blocks: int) -> Any:
    start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (blocks, *leaf.shape)), identity)

    def step(total: Any, element: Any) -> tuple[Any, Any]:
        total = jax.vmap(combine)(total, element)
        return total, total

    columns = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), folded)
    _, scanned = jax.lax.scan(step, start, columns)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), scanned)


def _scan_by_doubling(combine: Any, elements: Any, identity: Any, count: int) -> Any:
    """The scan of Hillis and Steele (1986): each level combines elements 1, 2, 4, ... apart."""
    distances = [2**level for level in range((count - 1).bit_length())]
    if not distances:
        return elements

    def level(elements: Any, distance: Any) -> tuple[Any, None]:
        return jax.vmap(combine)(_shift(elements, distance, identity), elements), None

    return jax.lax.scan(level, elements, jnp.asarray(distances))[0]


def _shift(elements: Any, distance: Any, identity: Any) -> Any:
    """The elements so many places later, behind identities."""

    def moved(leaf: Any, none: Any) -> Any:
        places = jnp.arange(len(leaf)) - distance
        there = (places >= 0).reshape(-1, *(1,) * none.ndim)
        return jnp.where(there, leaf[jnp.maximum(places, 0)], none[None])

    return jax.tree.map(moved, elements, identity)
