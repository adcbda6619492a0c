"""Filtering one reading at a time, as they come in."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool

from filtrax.arrays import Context, Control, Key, Reading
from filtrax.beliefs import Gaussian
from filtrax.checks import as_arrays
from filtrax.filters.base import AbstractFilter, Belief, Info
from filtrax.filters.run import check_finite_reading
from filtrax.model import StateSpaceModel, check_model
from filtrax.sensors import StackedSensors, sense


class OnlineFilter(Generic[Belief]):
    """A filter and its model, compiled for a robot's loop.

    ```python
    loop = filtrax.online(filt, model)
    belief = loop.init(prior, key=key)
    while True:
        belief, info = loop.step(belief, control, reading, key=key)
    ```

    It holds no belief: the caller does, and may keep, copy or rewind it. On a CPU the work of a
    step is done when it returns.
    """

    def __init__(self, init: Callable[..., Belief], step: Callable[..., Any], all_observed: Any):
        self._init = jax.jit(init)
        self._step = jax.jit(step)
        self._all_observed = all_observed

    def init(self, prior: Gaussian, *, key: Key) -> Belief:
        """The belief before the first reading."""
        return self._init(prior, key)

    def step(
        self,
        belief: Belief,
        control: Control,
        reading: Reading,
        *,
        observed: Any = None,
        key: Key,
    ) -> tuple[Belief, Info]:
        """The belief after a control and a reading: one compiled call, sensor included."""
        control, reading = _as_arrays(control), _as_arrays(reading)
        observed = self._all_observed if observed is None else jax.tree.map(np.asarray, observed)
        check_finite_reading(reading, observed)
        return self._step(belief, control, reading, observed, key)


def online(
    filt: AbstractFilter[Belief], model: StateSpaceModel, *, context: Context = None
) -> OnlineFilter[Belief]:
    """Prepares a filter and a model for readings that come one at a time.

    The step is traced and compiled on its first call, with the parameters as constants.
    """
    model = model.bind(context)

    def init(prior, key):
        return filt.init(model, prior, key=key)

    def step(belief, control, reading, observed, key):
        sensor_key, step_key = jr.split(key)
        measurement = sense(model.sensor, reading, observed, context, key=sensor_key)
        check_model(model, belief.moments(model.state_space), control, measurement)
        belief, info = filt.step(model, belief, control, measurement, key=step_key)
        finite = _in_this_thread(info.finite)
        return belief, dataclasses.replace(info, finite=finite, novelty=measurement.novelty)

    # A mask in the place of none lets readings go missing later without another compilation.
    # Stacked sensors without masks must stay a whole measurement, so they start without.
    all_observed = None if isinstance(model.sensor, StackedSensors) else jnp.asarray(True)
    return OnlineFilter(init, step, all_observed)


def _in_this_thread(finite: Bool[Array, ""]) -> Bool[Array, ""]:
    """Leaves a result as it is, but has a CPU compute it in the thread that asks for it.

    Otherwise that thread wakes up another one and is woken up by it, which takes longer than a
    step of a small filter. XLA never hands over a program that may call Python, because what is
    called may wait for a program itself. So here is such a call, in a branch that is not taken.
    """

    def on_cpu(finite):
        never = jax.lax.optimization_barrier(jnp.asarray(False))  # no compiler looks behind it
        call = lambda: jax.pure_callback(lambda finite: finite, finite, finite)  # noqa: E731
        return jax.lax.cond(never, call, lambda: finite)

    return jax.lax.platform_dependent(finite, cpu=on_cpu, default=lambda finite: finite)


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
