"""Naming the parts of a filter and a model that are trained."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from filtrax._checks import check_known
from filtrax._given import parameters

ROOTS = ("filter", "model")


def trainable(filt: Any, model: Any, train: Sequence[str]) -> PyTree[bool]:
    """A mask over `(filt, model)`: true for the floating-point arrays of the named parts.

    Parts are named from the root by attributes, like "model", "filter.kernel" or
    "model.sensor.noise"; entries of tuples by their number, as in "model.sensor.sensors.0". Arrays
    that are given (`filtrax.given`, `filtrax.given_field`) are not trained, whoever names them.
    """
    if isinstance(train, str):
        raise ValueError(f"`train` must be a sequence of names, got the string {train!r}.")
    if not train:
        raise ValueError('`train` must name at least one part, like "model"; it is empty.')
    both = (filt, model)
    allowed = parameters(both)
    mask = nothing = jax.tree.map(lambda _: False, allowed)
    for name in train:
        part = _find(both, name)
        named = _masked(nothing, name) if any(jax.tree.leaves(parameters(part))) else nothing
        addition = jax.tree.map(lambda a, b: a and b, named, allowed)
        # A whole filter often has no parameters; a part that somebody names has.
        if "." in name and not any(jax.tree.leaves(addition)):
            raise ValueError(f"{name!r}, which has no parameters to train.")
        mask = jax.tree.map(lambda a, b: a or b, mask, addition)
    if not any(jax.tree.leaves(mask)):
        raise ValueError(f"`train` names {list(train)}, which have no parameters to train.")
    return mask


def describe(filt: Any, model: Any, train: Sequence[str] = ("model", "filter")) -> str:
    """A table of all arrays that training would change, by name, with the number of their entries.

    Names are those that `train` takes.
    """
    leaves = jax.tree_util.tree_leaves_with_path((filt, model))
    mask = jax.tree.leaves(trainable(filt, model, train))
    pairs = zip(leaves, mask, strict=True)
    counts = {_name(path): np.size(leaf) for (path, leaf), is_trained in pairs if is_trained}
    rows = [("part", "count"), *((name, str(count)) for name, count in counts.items())]
    rows.append(("total", str(sum(counts.values()))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(f"{name:<{widths[0]}}  {count:>{widths[1]}}" for name, count in rows)


def _masked(nothing: PyTree[bool], name: str) -> PyTree[bool]:
    """A mask that is true for all leaves of a part."""
    part = jax.tree.map(lambda _: True, _find(nothing, name))
    return eqx.tree_at(lambda both: _find(both, name), nothing, part)


def _name(path: Sequence[Any]) -> str:
    """The name of an array in `(filt, model)`, as `train` takes it."""
    inside = jax.tree_util.keystr(tuple(path[1:]), simple=True, separator=".")
    return f"{ROOTS[path[0].idx]}.{inside}"


def transfer(filt: Any, model: Any, source: tuple[Any, Any], parts: Sequence[str]) -> Any:
    """The filter and model with the named parts of another filter and model, `source`."""
    both = (filt, model)
    for name in parts:
        mine, theirs = _find(both, name), _find(source, name)
        shapes = [jax.tree.map(np.shape, eqx.filter(p, eqx.is_array)) for p in (mine, theirs)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{name!r} must have the same structure in both models to be taken over: "
                f"got {shapes[1]} for {shapes[0]}."
            )
        both = eqx.tree_at(lambda b, name=name: _find(b, name), both, theirs)
    return both


def _find(both: tuple[Any, Any], name: str) -> Any:
    roots: dict[str, Any] = dict(zip(ROOTS, both, strict=True))
    first, *attributes = name.split(".")
    check_known(f"{name!r}, whose root must exist", {first} - set(roots), [*roots])
    part = roots[first]
    for attribute in attributes:
        children = _children(part)
        message = f"{name!r}, whose parts must exist"
        check_known(message, {attribute} - set(children), [*children])
        part = children[attribute]
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


def warn_of_hidden_parameters(filt: Any, model: Any) -> None:
    """Warns of functions that close over modules: their parameters cannot be seen, nor trained."""
    for path, leaf in jax.tree_util.tree_leaves_with_path((filt, model)):
        cells = getattr(leaf, "__closure__", None) or ()
        hidden = [cell.cell_contents for cell in cells if _has_parameters(cell)]
        if hidden:
            name = ROOTS[path[0].idx] + jax.tree_util.keystr(path[1:])
            warnings.warn(
                f"{name} is a function that uses a {type(hidden[0]).__name__} from outside, whose "
                "parameters will not be trained. Make it an `eqx.Module` that holds it.",
                stacklevel=3,
            )


def _has_parameters(cell: Any) -> bool:
    content = cell.cell_contents
    return isinstance(content, eqx.Module) and any(jax.tree.leaves(parameters(content)))
