"""Numbers that are given and never trained, marked where they are made.

`given(array)` marks a value, `given_field()` a field of a module. Marked values are unwrapped at
the edges, in `run`, `online`, `fit` and `save`; parts of a model see plain arrays.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from filtrax._checks import as_float

_GIVEN = "filtrax_given"


class Given(eqx.Module):
    """A value that no optimizer changes, as `given` makes it."""

    value: Array = eqx.field(converter=as_float)


def given(value: Any) -> Any:
    """Marks an array as given: surveyed landmarks, a calibration, the length of a wheelbase.

    A module may hold the result in the place of the array. No gradient goes there, no optimizer
    and no weight decay changes it, and it does not count as a parameter.
    """
    return Given(value)


if TYPE_CHECKING:
    from equinox import field as given_field  # the name by which type checkers know fields
else:

    def given_field(**options: Any) -> Any:
        """A field of an `eqx.Module` whose arrays are given, with the options of `eqx.field`."""
        metadata = {**options.pop("metadata", {}), _GIVEN: True}
        return eqx.field(metadata=metadata, **options)


def unwrap(tree: PyTree) -> PyTree:
    """The tree with plain arrays in the place of marked ones."""
    if not any(map(_is_given, jax.tree.leaves(tree, is_leaf=_is_given))):
        return tree
    value = lambda leaf: jax.lax.stop_gradient(leaf.value) if _is_given(leaf) else leaf  # noqa: E731
    return jax.tree.map(value, tree, is_leaf=_is_given)


def parameters(tree: PyTree) -> PyTree[bool]:
    """A mask with the structure of a tree: true for floating-point arrays that may be trained."""
    if _is_given(tree):
        return jax.tree.map(lambda _: False, tree)
    if isinstance(tree, eqx.Module):
        masks = {}
        for field in dataclasses.fields(tree):
            if field.metadata.get("static", False):
                continue
            child = getattr(tree, field.name, None)
            fixed = field.metadata.get(_GIVEN, False)
            masks[field.name] = _nothing(child) if fixed else parameters(child)
        leaves = [leaf for mask in masks.values() for leaf in jax.tree.leaves(mask)]
        return jax.tree.unflatten(jax.tree.structure(tree), leaves)
    children, structure = jax.tree.flatten(tree, is_leaf=lambda child: child is not tree)
    if len(children) == 1 and children[0] is tree:
        return eqx.is_inexact_array(tree)
    return jax.tree.unflatten(structure, [parameters(child) for child in children])


def _nothing(tree: PyTree) -> PyTree[bool]:
    return jax.tree.map(lambda _: False, tree)


def _is_given(leaf: Any) -> bool:
    return isinstance(leaf, Given)
