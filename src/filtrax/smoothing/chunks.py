"""Recordings that do not fit into memory, one chunk at a time.

The belief at the end of a chunk is all that the next one needs. So whoever keeps it can stop, and
go on another day.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PyTree

from filtrax._checks import as_arrays
from filtrax._given import unwrap
from filtrax._loops import scan_steps
from filtrax._types import Context, Key, Scalar
from filtrax.beliefs import Gaussian
from filtrax.filters._run import check_first, check_sequence, sense_all
from filtrax.filters.base import AbstractFilter, Belief, Info
from filtrax.filters.links import linked_step, require_kalman
from filtrax.linalg import precise
from filtrax.smoothing.base import Sequence as Steps
from filtrax.smoothing.base import Smoothed
from filtrax.smoothing.gaussian import Linked, last_coordinates, smoothed_of, trace_back
from filtrax.state_space import StateSpaceModel


class Chunk(eqx.Module):
    """Some steps of a recording; the fields are those of `run`."""

    readings: PyTree
    inputs: PyTree = None
    observed: PyTree = None

    @property
    def num_steps(self) -> int:
        """The number of steps."""
        return jax.tree.leaves(self.readings)[0].shape[0]


class FilteredChunk(eqx.Module, Generic[Belief]):
    """The result of filtering a chunk.

    **Attributes:**

    - `beliefs`, `info`, `log_likelihood`: as in `Filtered`, of this chunk alone.
    - `last`: the belief at its end, from which the next chunk goes on.
    """

    beliefs: Belief
    info: Info
    log_likelihood: Scalar | None
    last: Belief


def run_chunks(
    filt: AbstractFilter[Belief],
    model: StateSpaceModel,
    prior: Gaussian | None,
    chunks: Iterable[Any],
    *,
    context: Context = None,
    start: Belief | None = None,
    key: Key | None = None,
    callback: Callable[[int], None] | None = None,
) -> Iterator[FilteredChunk[Belief]]:
    """Filters a recording chunk by chunk, with the beliefs that `run` would return.

    Chunks of one length share a program. Nothing is read before it is needed, and nothing is kept.

    **Arguments:**

    - `prior`: the belief before the first step; None where `start` is given.
    - `chunks`: any iterable of chunks, like a generator that reads them from a file.
    - `start`: the `last` of the chunk before the first one here, to resume.
    - `key`: for filters and sensors that draw.
    - `callback`: called after each chunk with the number of steps so far, like the method of a
      progress bar.
    """
    if (prior is None) == (start is None):
        raise ValueError("`run_chunks` needs either `prior` or `start`, not both.")
    belief, done = start, 0
    for number, chunk in enumerate(chunks):
        chunk, own = _checked(chunk), None if key is None else jr.fold_in(key, number)
        if belief is None:
            belief = _init(filt, model, prior, context, own)
        result = _filtered(filt, model, belief, chunk, context, own)
        belief, done = result.last, done + chunk.num_steps
        yield result
        if callback is not None:
            callback(done)


def smooth_chunks(
    filt: AbstractFilter,
    model: StateSpaceModel,
    prior: Gaussian,
    chunks: Sequence[Any],
    *,
    context: Context = None,
    key: Key | None = None,
    callback: Callable[[int], None] | None = None,
) -> Iterator[Smoothed[Gaussian]]:
    """Smooths a recording with a Kalman filter, from its last chunk to its first.

    Each chunk is filtered twice: once to find the beliefs at the ends of chunks, which are kept,
    and once on the way back. The results are those of `smooth`; info and likelihood are those of
    the chunk.

    **Arguments:** those of `run_chunks`, where `chunks` has a length and gives each chunk by its
    number, as a list does, or an object that reads them from a file.
    """
    require_kalman(filt, "`smooth_chunks`")
    beliefs = [_init(filt, model, prior, context, key)]
    for number in range(len(chunks)):
        chunk, own = _checked(chunks[number]), None if key is None else jr.fold_in(key, number)
        beliefs.append(_filtered(filt, model, beliefs[-1], chunk, context, own).last)
    later, done = last_coordinates(beliefs[-1]), 0
    for number in reversed(range(len(chunks))):
        chunk, own = _checked(chunks[number]), None if key is None else jr.fold_in(key, number)
        later, result = _smoothed(filt, model, beliefs[number], later, chunk, context, own)
        done += chunk.num_steps
        yield result
        if callback is not None:
            callback(done)


def likelihood_of_chunks(
    filt: AbstractFilter,
    model: StateSpaceModel,
    prior: Gaussian,
    chunks: Sequence[Any],
    *,
    context: Context = None,
    truncated: bool = False,
    key: Key | None = None,
) -> tuple[Scalar, PyTree]:
    """The log likelihood of a recording, and its gradient with respect to the model.

    Memory holds the beliefs at the ends of chunks, and one chunk with its derivatives, as each is
    filtered again on the way back.

    **Arguments:** those of `smooth_chunks`, for any filter with a likelihood, and

    - `truncated`: treat the belief at the start of a chunk as a constant. The gradient is then an
      approximation, and each chunk is filtered once.

    **Returns:** the likelihood, and the gradient in the form of the model, with None in the place
    of what is no array.
    """
    belief, total = _init(filt, model, prior, context, key), jnp.zeros((), prior.mean.dtype)
    starts, gradient = [], None
    keys = [None if key is None else jr.fold_in(key, number) for number in range(len(chunks))]
    for number, own in enumerate(keys):
        chunk = _checked(chunks[number])
        starts.append(belief)
        if truncated:
            none = jax.tree.map(jnp.zeros_like, eqx.filter(belief, eqx.is_inexact_array))
            part, _ = _pulled_back(filt, model, belief, none, chunk, context, own)
            gradient = part if gradient is None else jax.tree.map(jnp.add, gradient, part)
        result = _filtered(filt, model, belief, chunk, context, own)
        belief, total = result.last, total + _likelihood(filt, result)
    if truncated:
        return total, gradient
    cotangent = jax.tree.map(jnp.zeros_like, eqx.filter(belief, eqx.is_inexact_array))
    for number in reversed(range(len(chunks))):
        known = (_checked(chunks[number]), context, keys[number])
        part, cotangent = _pulled_back(filt, model, starts[number], cotangent, *known)
        gradient = part if gradient is None else jax.tree.map(jnp.add, gradient, part)
    return total, gradient


def _checked(chunk: Any) -> Chunk:
    if not isinstance(chunk, Chunk):
        raise TypeError(
            "`chunks` must hold `Chunk(readings, inputs=..., observed=...)` objects, got a "
            f"{type(chunk).__name__}."
        )
    chunk = as_arrays(chunk)
    check_sequence(chunk.readings, chunk.observed, inputs=chunk.inputs)
    return jax.tree.map(jnp.asarray, chunk)


@eqx.filter_jit
@precise
def _init(filt, model, prior, context, key) -> Any:
    return unwrap(filt).init(unwrap(model).bind(context), prior, key=key)


def _prepared(filt, model, belief, chunk, context, key):
    """Filter, model and steps of a chunk as plain arrays."""
    filt, model = unwrap(filt), unwrap(model).bind(context)
    sensor_key, key = (None, None) if key is None else jr.split(key)
    known = (chunk.readings, chunk.observed, chunk.inputs, context)
    measurements = sense_all(model, *known, key=sensor_key)
    check_first(model, belief.moments(model.state_space), chunk.inputs, measurements)
    keys = None if key is None else jr.split(key, chunk.num_steps)
    return filt, model, Steps(measurements, chunk.inputs, keys)


@eqx.filter_jit
def _filtered(filt, model, belief, chunk, context, key) -> FilteredChunk:
    return _filter(filt, model, belief, chunk, context, key)


@precise
def _filter(filt, model, belief, chunk, context, key) -> FilteredChunk:
    filt, model, steps = _prepared(filt, model, belief, chunk, context, key)

    def step(belief, known):
        belief, info = filt.step(model, belief, known.measurements, known.inputs, key=known.keys)
        info = Info(info.finite, info.log_likelihood, known.measurements.novelty)
        return belief, (belief, info)

    last, (beliefs, info) = scan_steps(step, belief, steps, recompute=None)
    total = None if info.log_likelihood is None else info.log_likelihood.sum()
    return FilteredChunk(beliefs, info, total, last)


@eqx.filter_jit
@precise
def _smoothed(filt, model, belief, later, chunk, context, key) -> tuple[Gaussian, Smoothed]:
    """Coordinates at the start of a chunk from those at its end, and the beliefs between."""
    filt, model, steps = _prepared(filt, model, belief, chunk, context, key)

    def step(belief, known):
        known_then = (known.measurements, known.inputs)
        belief, info, link = linked_step(filt, model, belief, *known_then, key=known.keys)
        info = Info(info.finite, info.log_likelihood, known.measurements.novelty)
        return belief, (belief, info, link)

    _, kept = scan_steps(step, belief, steps, recompute=None)
    passed = Linked(belief, *kept)
    first, white = trace_back(passed.links, later)
    return first, smoothed_of(passed, first, white, model.state_space)


def _likelihood(filt: Any, found: FilteredChunk) -> Scalar:
    if found.log_likelihood is None:
        raise ValueError(
            "`likelihood_of_chunks` needs a filter with a likelihood; "
            f"{type(filt).__name__} has none."
        )
    return found.log_likelihood


@eqx.filter_jit
def _pulled_back(filt, model, belief, cotangent, chunk, context, key) -> tuple[PyTree, PyTree]:
    """Gradients of a chunk's likelihood and of what follows, for the model and the belief."""
    arrays, rest = eqx.partition((model, belief), eqx.is_inexact_array)

    def results(arrays):
        model, belief = eqx.combine(arrays, rest)
        found = _filter(filt, model, belief, chunk, context, key)
        likelihood = _likelihood(filt, found)
        return likelihood, eqx.filter(found.last, eqx.is_inexact_array)

    (total, _), pull = jax.vjp(results, arrays)
    (gradients,) = pull((jnp.ones_like(total), cotangent))
    return gradients
