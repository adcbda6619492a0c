"""Naming the parts of a filter and a model that are trained."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from filtrax.checks import check_known


def trainable(filt: Any, model: Any, train: Sequence[str]) -> PyTree[bool]:
    """A mask over `(filt, model)`: true for the floating-point arrays of the named parts.

    Parts are named from the root by attributes, like "model", "filter.kernel" or
    "model.sensor.noise"; entries of tuples by their number, as in "model.sensor.sensors.0".
    """
    if isinstance(train, str):
        raise ValueError(f"`train` must be a sequence of names, got the string {train!r}.")
    if not train:
        raise ValueError('`train` must name at least one part, like "model"; it is empty.')
    mask = jax.tree.map(lambda _: False, (filt, model))
    for name in train:
        part = _find((filt, model), name)
        # A whole filter often has no parameters; a part that somebody names has.
        if "." in name and not jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array)):
            raise ValueError(f"`train` names {name!r}, which has no parameters to train.")
        where = eqx.tree_at(
            lambda both, name=name: _find(both, name),
            mask,
            jax.tree.map(eqx.is_inexact_array, part),
        )
        mask = jax.tree.map(lambda a, b: a or b, mask, where)
    if not any(jax.tree.leaves(mask)):
        raise ValueError(f"`train` names {list(train)}, which have no parameters to train.")
    return mask


def _find(both: tuple[Any, Any], name: str) -> Any:
    roots = {"filter": both[0], "model": both[1]}
    first, *rest = name.split(".")
    check_known(f"`train` names {name!r}, whose root must exist", {first} - set(roots), [*roots])
    part = roots[first]
    for attribute in rest:
        known = _children(part)
        what = f"`train` names {name!r}, whose parts must exist"
        check_known(what, {attribute} - set(known), [*known])
        part = known[attribute]
    return part


def _children(part: Any) -> dict[str, Any]:
    """The named parts of a module, or the numbered ones of a tuple or list."""
    if isinstance(part, tuple | list):
        return {str(number): child for number, child in enumerate(part)}
    if isinstance(part, dict):
        return {str(key): child for key, child in part.items()}
    if dataclasses.is_dataclass(part):
        return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {}
