"""Filtering one reading at a time, as they come in."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool

from filtrax._checks import as_arrays, keyword_only, unmasked
from filtrax._given import unwrap
from filtrax._types import Context, Inputs, Key, Reading
from filtrax.beliefs import Gaussian
from filtrax.filters._run import check_finite_reading
from filtrax.filters.base import AbstractFilter, Belief
from filtrax.filters.interacting import check_modes
from filtrax.filters.links import LaggedFilter
from filtrax.linalg import precise
from filtrax.sensors import StackedSensors, sense
from filtrax.state_space import StateSpaceModel, check_model


class OnlineFilter(Generic[Belief]):
    """A filter and its model, compiled for a robot's loop.

    ```python
    loop = filtrax.online(filt, model)
    belief = loop.init(prior)
    while True:
        belief, info = loop.step(belief, reading, inputs=command)
    ```

    It holds no belief: the caller does, and may keep, copy or rewind it. On a CPU the work of a
    step is done when it returns. With a `lag`, a step also returns the belief about the state so
    many steps ago, and beliefs are `Lagged` ones, whose `now` is the filter's.
    """

    def __init__(
        self,
        init: Callable[..., Belief],
        step: Callable[..., tuple[Any, ...]],
        all_observed: Any,
    ):
        self._init = jax.jit(init)
        self._traced = step
        self._step = jax.jit(lambda *arguments: _in_calling_thread(step(*arguments)))
        self._all_observed = all_observed

    def init(self, prior: Gaussian, *, key: Key | None = None) -> Belief:
        """The belief before the first reading."""
        return self._init(prior, key)

    @keyword_only(
        "step(belief, reading, *, inputs=None, observed=None, key=None)",
        control="inputs",
        controls="inputs",
    )
    def step(
        self,
        belief: Belief,
        reading: Reading,
        *,
        inputs: Inputs = None,
        observed: Any = None,
        key: Key | None = None,
    ) -> tuple[Any, ...]:
        """The belief at the next reading: one compiled call, sensor included.

        `inputs` are what is known at that step, `observed` says what there is of the reading. The
        result is belief and info, and with a lag the belief about the earlier state.
        """
        return self._step(*self._arguments(belief, reading, inputs, observed, key))

    def export(
        self,
        belief: Belief,
        reading: Reading,
        *,
        inputs: Inputs = None,
        observed: Any = None,
        key: Key | None = None,
        platforms: tuple[str, ...] = ("cpu",),
    ) -> jax.export.Exported:
        """The step as `jax.export` serializes it, for arguments like these.

        `call(belief, reading, inputs, observed, key)` of the result, or of what is deserialized
        where the robot runs, does what `step` does without its checks. Beliefs and info are
        dictionaries of arrays there, as `as_dicts(belief)` makes them, so that nothing but JAX is
        needed to call it.
        """
        belief, *others = self._arguments(belief, reading, inputs, observed, key)

        def step(arrays, *others):
            return as_dicts(self._traced(_as_modules(arrays, belief), *others))

        exporting = jax.export.export(jax.jit(step), platforms=platforms)
        return exporting(as_dicts(belief), *others)

    def _arguments(self, belief, reading, inputs, observed, key) -> tuple[Any, ...]:
        if isinstance(reading, np.ma.MaskedArray):
            reading, observed = _unmasked(reading, observed)
        inputs, reading = _as_arrays(inputs), _as_arrays(reading)
        observed = self._all_observed if observed is None else jax.tree.map(np.asarray, observed)
        check_finite_reading(reading, observed)
        return belief, reading, inputs, observed, key


def online(
    filt: AbstractFilter[Belief],
    model: StateSpaceModel,
    *,
    context: Context = None,
    lag: int | None = None,
) -> OnlineFilter[Belief]:
    """Prepares a filter and a model for readings that come one at a time.

    The step is traced and compiled on its first call, with the parameters as constants.

    With a `lag` of k, `step` of a Kalman filter returns belief, info, and the belief about the
    state k steps ago given all readings so far. Until k steps are done, that is the initial state.
    """
    filt, model = unwrap(filt), unwrap(model).bind(context)
    running: Any = filt if lag is None else LaggedFilter(filt, lag)

    @precise
    def init(prior, key):
        return running.init(model, prior, key=key)

    @precise
    def step(belief, reading, inputs, observed, key):
        sensor_key, step_key = (None, None) if key is None else jr.split(key)
        measurement = sense(model.sensor, reading, observed, inputs, context, key=sensor_key)
        moments = belief.moments(model.state_space)
        check_model(model, moments, inputs, measurement)
        check_modes(model, moments, inputs, measurement)
        belief, info = running.step(model, belief, measurement, inputs, key=step_key)
        earlier = () if lag is None else (belief.earlier(model.state_space),)
        return belief, dataclasses.replace(info, novelty=measurement.novelty), *earlier

    # A mask in the place of none lets readings go missing later without another compilation.
    # Stacked sensors without masks must stay a whole measurement, so they start without.
    all_observed = None if isinstance(model.sensor, StackedSensors) else jnp.asarray(True)
    return OnlineFilter(init, step, all_observed)


def as_dicts(tree: Any) -> Any:
    """A tree with dictionaries of fields in the place of modules, like a belief for `export`."""
    if isinstance(tree, eqx.Module):
        return {f.name: as_dicts(getattr(tree, f.name)) for f in dataclasses.fields(tree)}
    if isinstance(tree, tuple):
        return tuple(map(as_dicts, tree))
    return tree


def _as_modules(dicts: Any, like: Any) -> Any:
    """The modules that `as_dicts` made dictionaries of."""
    structure = jax.tree.structure(like)
    numbers = jax.tree.unflatten(structure, range(structure.num_leaves))
    order = jax.tree.leaves(as_dicts(numbers))  # dictionaries sort their keys
    leaves = dict(zip(order, jax.tree.leaves(dicts), strict=True))
    return jax.tree.unflatten(structure, [leaves[i] for i in range(structure.num_leaves)])


def _in_calling_thread(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leaves the result unchanged, but has a CPU compute it in the calling thread.

    Otherwise that thread wakes another one and is woken by it, which takes longer than a step of a
    small filter. XLA never hands over a program that may call Python, because what is called may
    wait for a program itself. So here is such a call, in a branch that is not taken.
    """
    belief, info, *others = result
    return belief, dataclasses.replace(info, finite=_with_python(info.finite)), *others


def _with_python(finite: Bool[Array, ""]) -> Bool[Array, ""]:
    def on_cpu(finite):
        never = jax.lax.optimization_barrier(jnp.asarray(False))  # no compiler looks behind it
        call = lambda: jax.pure_callback(lambda finite: finite, finite, finite)  # noqa: E731
        return jax.lax.cond(never, call, lambda: finite)

    return jax.lax.platform_dependent(finite, cpu=on_cpu, default=lambda finite: finite)


def _unmasked(reading: np.ma.MaskedArray, observed: Any) -> tuple[Any, Any]:
    observed = None if observed is None else np.asarray(observed)[None]
    readings, mask = unmasked(reading[None], observed)
    return readings[0], mask[0]


def _as_arrays(tree: Any) -> Any:
    """A tree without lists and plain numbers."""
    if tree is None or isinstance(tree, np.ndarray | jax.Array):
        return tree  # the common case, kept cheap
    return jax.tree.map(_as_array, as_arrays(tree))


def _as_array(leaf: Any) -> Any:
    """Plain numbers as floating-point arrays, so that 1 and 1.0 are the same program."""
    if isinstance(leaf, float | int) and not isinstance(leaf, bool):
        return np.asarray(leaf, jnp.result_type(float))
    return leaf
