"""Naming the parts of a filter and a model that are trained."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from filtrax.checks import check_known
from filtrax.filters import Scaling
from filtrax.noise import FixedNoise, Unit
from filtrax.novelty import Novelty
from filtrax.resampling import Soft
from filtrax.spaces import Space
from filtrax.switching import Transitions


def trainable(filt: Any, model: Any, train: Sequence[str]) -> PyTree[bool]:
    """A mask over `(filt, model)`: true for the floating-point arrays of the named parts.

    Parts are named from the root by attributes, like "model", "filter.kernel" or
    "model.sensor.noise"; entries of tuples by their number, as in "model.sensor.sensors.0".
    """
    if isinstance(train, str):
        raise ValueError(f"`train` must be a sequence of names, got the string {train!r}.")
    if not train:
        raise ValueError('`train` must name at least one part, like "model"; it is empty.')
    nothing = jax.tree.map(lambda _: False, (filt, model), is_leaf=_is_given)
    mask = nothing
    for name in train:
        part = _find((filt, model), name)
        # A whole filter often has no parameters; a part that somebody names has.
        chosen = jax.tree.map(_is_parameter, part, is_leaf=_is_given)
        if "." in name and not any(jax.tree.leaves(chosen)):
            raise ValueError(f"{name!r}, which has no parameters to train.")
        where = eqx.tree_at(lambda both, name=name: _find(both, name), nothing, chosen)
        mask = jax.tree.map(lambda a, b: a or b, mask, where)
    if not any(jax.tree.leaves(mask)):
        raise ValueError(f"`train` names {list(train)}, which have no parameters to train.")
    return mask


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
    roots = {"filter": both[0], "model": both[1]}
    first, *rest = name.split(".")
    check_known(f"{name!r}, whose root must exist", {first} - set(roots), [*roots])
    part = roots[first]
    for attribute in rest:
        known = _children(part)
        what = f"{name!r}, whose parts must exist"
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


def _is_given(part: Any) -> bool:
    """Whether the numbers of a part are given and not learned, even where they are arrays."""
    return isinstance(part, Space | FixedNoise | Scaling | Soft | Unit | Novelty | Transitions)


def _is_parameter(leaf: Any) -> bool:
    return not _is_given(leaf) and eqx.is_inexact_array(leaf)


def warn_of_hidden_parameters(filt: Any, model: Any) -> None:
    """Warns of functions that close over modules: their parameters cannot be seen, nor trained."""
    for path, leaf in jax.tree_util.tree_leaves_with_path((filt, model)):
        cells = getattr(leaf, "__closure__", None) or ()
        hidden = [cell.cell_contents for cell in cells if _has_parameters(cell)]
        if hidden:
            name = ("filter", "model")[path[0].idx] + jax.tree_util.keystr(path[1:])
            warnings.warn(
                f"{name} is a function that uses a {type(hidden[0]).__name__} from outside, whose "
                "parameters will not be trained. Make it an `eqx.Module` that holds it.",
                stacklevel=3,
            )


def _has_parameters(cell: Any) -> bool:
    content = cell.cell_contents
    return isinstance(content, eqx.Module) and any(
        eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(content)
    )
