"""Checks of arguments, made before anything runs.

Each message says what must hold, what was found, and names the argument. Shapes are checked
always; values only when they are known, that is outside of `jit`, `grad` and `vmap`.
"""

import difflib
import functools
import inspect
import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

LARGEST = 2**31 - 1
"""The largest whole number that JAX holds with its default types."""

Target = TypeVar("Target", bound=Callable)


def keyword_only(form: str, **renamed: str) -> Callable[[Target], Target]:
    """Makes calls in an older form of a function or a class fail with a sentence.

    **Arguments:**

    - `form`: the call as it should be, which the sentence quotes.
    - `renamed`: new names of arguments, by their old ones.
    """

    def guarded(function: Callable) -> Callable:
        kinds = {name: p.kind for name, p in inspect.signature(function).parameters.items()}
        positional = sum(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds.values())
        bound = int(next(iter(kinds)) == "self")

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            if len(args) > positional:
                raise TypeError(
                    f"All but the first {positional - bound} arguments must be given by name, got "
                    f"{len(args) - bound} in a row: {form}."
                )
            for old, new in renamed.items():
                if old in kwargs:
                    raise TypeError(f"`{old}` is called `{new}` now: {form}.")
            return function(*args, **kwargs)

        return wrapped

    def decorate(target: Target) -> Target:
        if not isinstance(target, type):
            return cast(Target, guarded(target))
        cls: Any = target
        cls.__init__ = guarded(cls.__init__)
        return cls

    return decorate


def as_float(value: Any) -> Array:
    """Turns numbers, lists and arrays into a floating-point array; keeps floating dtypes."""
    if value is None:
        raise ValueError("An array of numbers is needed here, got None.")
    array = jnp.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"An array must hold real numbers, got one of {array.dtype}.")
    if jnp.issubdtype(array.dtype, jnp.floating):
        return array
    return array.astype(jnp.result_type(float))


def as_arrays(tree: Any) -> Any:
    """Turns the lists of numbers or arrays in a tree into arrays."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, list) else leaf,
        tree,
        is_leaf=lambda leaf: isinstance(leaf, list),
    )


def is_concrete(tree: Any) -> bool:
    """Tells if the values of all arrays in a tree are known (no tracer among them)."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def unmasked(readings: Any, observed: Any) -> tuple[Any, Any]:
    """Turns NumPy's masked arrays into plain ones, and their masks into `observed`.

    A masked number of a vector is a component that was not observed; of anything else, like an
    image, the whole reading was not. Readings in a tuple have a tuple of masks, as sensors have.
    """
    if not any(isinstance(leaf, np.ma.MaskedArray) for leaf in jax.tree.leaves(readings)):
        return readings, observed
    if isinstance(readings, tuple):
        masks = observed if isinstance(observed, tuple) else (observed,) * len(readings)
        pairs = [unmasked(part, mask) for part, mask in zip(readings, masks, strict=True)]
        return tuple(part for part, _ in pairs), tuple(mask for _, mask in pairs)
    if isinstance(readings, np.ma.MaskedArray) and readings.ndim == 2:
        seen = ~np.ma.getmaskarray(readings)
    else:
        leaves = jax.tree.leaves(readings)
        masks = [np.ma.getmaskarray(np.ma.asarray(leaf)) for leaf in leaves]
        seen = ~np.any([mask.reshape(len(mask), -1).any(1) for mask in masks], axis=0)
    if observed is not None:
        also = np.asarray(observed)
        size = max(seen.ndim, also.ndim)
        seen, also = (mask.reshape(mask.shape + (1,) * (size - mask.ndim)) for mask in (seen, also))
        seen = seen & also
    plain = lambda leaf: np.ma.getdata(leaf) if isinstance(leaf, np.ma.MaskedArray) else leaf  # noqa: E731
    return jax.tree.map(plain, readings), seen


def check_plain(name: str, tree: Any) -> None:
    """Raises unless all arrays in a tree hold real numbers, without masks of their own."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, np.ma.MaskedArray):
            raise ValueError(
                f"`{name}` must be plain arrays, got one with a mask: say by a mask of its own "
                "what is known, `observed` for readings and `labelled` for states."
            )
        kind = np.dtype(getattr(leaf, "dtype", float)) if hasattr(leaf, "__array__") else None
        if kind is not None and kind.kind in "cOSUmM":
            raise ValueError(f"`{name}` must hold real numbers, got an array of {kind}.")


def check_shape(name: str, array: Any, expected: tuple[int, ...]) -> None:
    """Raises unless the array has the expected shape."""
    if jnp.shape(array) != expected:
        raise ValueError(f"`{name}` must have shape {expected}, got {jnp.shape(array)}.")


def check_signature(
    name: str, part: Any, arguments: Sequence[str], keywords: Sequence[str] = ()
) -> None:
    """Raises unless a part of a model can be called with these arguments."""
    form = f"{name}({', '.join([*arguments, *('*' for _ in keywords[:1]), *keywords])})"
    if not callable(part):
        raise TypeError(f"`{name}` must be callable as `{form}`, got a {type(part).__name__}.")
    try:
        signature = inspect.signature(part)
    except (TypeError, ValueError):  # of a builtin, say
        return
    try:
        signature.bind(*arguments, **dict.fromkeys(keywords))
    except TypeError as error:
        raise TypeError(
            f"`{name}` must be callable as `{form}`, got `{name}{signature}`: {error}."
        ) from error


def check_covariance(name: str, matrix: Array) -> None:
    """Raises unless the last two axes hold symmetric positive semi-definite matrices."""
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"`{name}` must be a square matrix, got shape {matrix.shape}.")
    if not is_concrete(matrix):
        return
    values = np.asarray(matrix, np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"`{name}` must be finite, got\n{values}")
    variances = np.diagonal(values, axis1=-2, axis2=-1)
    # Components may differ in scale by any factor, so what is checked are their correlations.
    stds = np.sqrt(np.where(variances > 0, variances, 1.0))
    values = values / (stds[..., :, None] * stds[..., None, :])
    asymmetry = np.abs(values - np.swapaxes(values, -1, -2)).max(initial=0.0)
    # Numbers that went through single precision carry its rounding.
    rounding = 10 * values.shape[-1] * float(jnp.finfo(matrix.dtype).eps)
    if asymmetry > rounding:
        raise ValueError(
            f"`{name}` must be symmetric, but it differs from its transpose by {asymmetry:.3g}."
        )
    smallest = np.linalg.eigvalsh(values).min(initial=0.0)
    if smallest < -rounding or (variances < 0).any():
        raise ValueError(
            f"`{name}` must be positive semi-definite, but its smallest eigenvalue is "
            f"{smallest:.3g}."
        )


def check_known(what: str, unknown: Iterable[str], known: Sequence[str]) -> None:
    """Raises if there are unknown names, and suggests the closest known ones."""
    unknown = list(unknown)
    if not unknown:
        return
    hints = [difflib.get_close_matches(name, known, n=1) for name in unknown]
    closest = [hint[0] for hint in hints if hint]
    advice = f" Did you mean {', '.join(repr(name) for name in closest)}?" if closest else ""
    raise ValueError(f"{what}: got {unknown}, but there are only {list(known)}.{advice}")


def check_whole(name: str, value: Any, lowest: int, highest: int | None = None) -> None:
    """Raises unless a value is a whole number within its limits."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        whole = int(value)
        if whole > LARGEST >= (highest or 0):
            raise ValueError(f"`{name}` must be at most {LARGEST}, the largest of 32 bits.")
        if lowest <= whole and (highest is None or whole <= highest):
            return
    limits = f"at least {lowest}" if highest is None else f"between {lowest} and {highest}"
    raise ValueError(f"`{name}` must be a whole number, {limits}: got {value!r}.")
