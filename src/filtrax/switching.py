"""Processes that switch between modes, like a pusher that touches an object or does not.

A mode replaces parts of a model and shares the others, its sensor above all, so that readings are
processed once for all modes. The mode of a system is not known; it is a Markov chain.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from filtrax._checks import as_float, check_signature, is_concrete
from filtrax._given import given_field
from filtrax._types import Context, Inputs, Observation, State, bound
from filtrax.networks import Features
from filtrax.noise import AbstractNoise
from filtrax.sensors import Measurement
from filtrax.state_space import StateSpaceModel

Head = Callable[[State, Inputs], Float[Array, "..."]]
"""Maps state and inputs to one number for each pair of modes."""


def _as_numbers(values: Any) -> tuple[float, ...] | None:
    return None if values is None else tuple(float(value) for value in values)


class AbstractTransitions(eqx.Module):
    """The probabilities of going from mode to mode in a step."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of modes."""

    @abc.abstractmethod
    def __call__(self, state: State, inputs: Inputs) -> Float[Array, "m m"]:
        """ln P(j | i), with a row for each mode i before the step, at the state before it."""


class Transitions(AbstractTransitions):
    """Probabilities that no training changes.

    `matrix` has a row for each mode before the step, which sums to one. Entries may be zero.
    """

    matrix: Float[Array, "m m"] = given_field(converter=as_float)

    def __check_init__(self):
        _check_matrix("matrix", self.matrix)

    @property
    def size(self) -> int:
        return self.matrix.shape[-1]

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, "m m"]:
        del inputs
        return jax.lax.stop_gradient(jnp.log(self.matrix).astype(state.dtype))


class LearnedTransitions(AbstractTransitions):
    """Probabilities to train: softmax(logits + head(state, inputs)) of each row.

    They are valid whatever an optimizer does to the logits.

    **Arguments:**

    - `start`: the matrix before training, where the head gives zero. No entry may be zero.
    - `head`: `head(state, inputs)`, with a logit for each pair of modes. None: the probabilities
      do not depend on state and inputs.
    """

    logits: Float[Array, "m m"]
    head: Head | None

    def __init__(self, start: Any, *, head: Head | None = None):
        start = as_float(start)
        _check_matrix("start", start)
        if is_concrete(start) and not (np.asarray(start) > 0).all():
            raise ValueError(
                "`start` must be positive, because a probability of zero has no gradient to leave "
                f"it: got\n{start}\nUse `Transitions` for a matrix with zeros."
            )
        if head is not None:
            check_signature("head", head, ("state", "inputs"))
        self.logits = jnp.log(start)
        self.head = head

    @property
    def size(self) -> int:
        return self.logits.shape[-1]

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, "m m"]:
        logits = self.logits
        if self.head is not None:
            output = self.head(state, inputs)
            if output.size != logits.size:
                raise ValueError(
                    f"`head` must give {logits.size} numbers, one for each pair of {self.size} "
                    f"modes, got an array of shape {output.shape}."
                )
            logits = logits + output.reshape(logits.shape)
        return jax.nn.log_softmax(logits, axis=-1)

    def bind(self, context: Context) -> "LearnedTransitions":
        """The transitions for one sequence."""
        if self.head is None:
            return self
        return eqx.tree_at(lambda t: t.head, self, bound(self.head, context))


class TransitionHead(eqx.Module):
    """A network of state and inputs that gives a logit for each pair of modes."""

    network: Callable[[Float[Array, " features"]], Float[Array, " outputs"]]
    features: Features = Features()

    def __call__(self, state: State, inputs: Inputs) -> Float[Array, " outputs"]:
        return self.network(self.features(state, inputs))


class Mode(eqx.Module):
    """Parts of a model that are different in one of its modes; None keeps the model's own.

    **Attributes:**

    - `process`, `process_noise`, `observe`: as in `StateSpaceModel`.
    - `sensor_noise`: the noise of measurements, called with their features, or with their value
      where they have none.
    """

    process: Callable[[State, Inputs], State] | None = None
    process_noise: AbstractNoise | None = None
    observe: Callable[[State, Inputs], Observation] | None = None
    sensor_noise: AbstractNoise | None = None

    def __check_init__(self):
        for name in ("process", "process_noise", "observe"):
            if getattr(self, name) is not None:
                check_signature(name, getattr(self, name), ("state", "inputs"))

    def bind(self, context: Context) -> "Mode":
        """The mode for one sequence."""
        parts = (self.process, self.process_noise, self.observe, self.sensor_noise)
        return Mode(*(bound(part, context) for part in parts))

    def measured(self, measurement: Measurement) -> Measurement:
        """The measurement with the noise of this mode."""
        if self.sensor_noise is None:
            return measurement
        has_features = bool(jax.tree.leaves(measurement.features))
        features = measurement.features if has_features else measurement.value
        return dataclasses.replace(measurement, factor=self.sensor_noise(features))


class SwitchingProcess(eqx.Module):
    """A process that is in one of several modes, as a Markov chain.

        m_t ~ P(m_t | m_{t-1}, x_{t-1}, u_t),   x_t = f_m(x_{t-1}, u_t) + q_t,   q_t ~ N(0, Q_m)
        z_t = h_m(x_t) + r_t,                   r_t ~ N(0, R_m),   m = m_t

    It is the `process` of a model. An `IMMFilter` sees the modes. Everything else that works with
    models, other filters included, sees the process inside, and so the model without modes.

    **Attributes:**

    - `process`: the process of modes that have none of their own.
    - `modes`: what changes in each mode; `Mode()` changes nothing.
    - `transitions`: `transitions(state, inputs)`, the probabilities of going from mode to mode.
    - `initial`: the probability of each mode before the first step. None: all are equal.
    """

    process: Callable[[State, Inputs], State]
    modes: tuple[Mode, ...]
    transitions: AbstractTransitions
    initial: tuple[float, ...] | None = eqx.field(default=None, static=True, converter=_as_numbers)

    def __check_init__(self):
        count = len(self.modes)
        if count == 0 or self.transitions.size != count:
            raise ValueError(
                "`modes` must be as many as `transitions` has rows, and at least one: got "
                f"{count} modes for {self.transitions.size} rows."
            )
        check_signature("process", self.process, ("state", "inputs"))
        check_signature("transitions", self.transitions, ("state", "inputs"))
        if self.initial is None:
            return
        initial = np.asarray(self.initial)
        if initial.shape != (count,) or (initial < 0).any() or not np.isclose(initial.sum(), 1):
            raise ValueError(
                f"`initial` must be {count} probabilities that sum to one, got {self.initial}."
            )

    def __call__(self, state: State, inputs: Inputs) -> State:
        return self.process(state, inputs)

    def bind(self, context: Context) -> "SwitchingProcess":
        """The process for one sequence."""
        return SwitchingProcess(
            bound(self.process, context),
            tuple(mode.bind(context) for mode in self.modes),
            bound(self.transitions, context),
            self.initial,
        )

    def initial_log_weights(self, dtype) -> Float[Array, " m"]:
        """ln P(m₀)."""
        count = len(self.modes)
        initial = (1 / count,) * count if self.initial is None else self.initial
        return jnp.log(jnp.asarray(initial, dtype))


def switching(model: StateSpaceModel) -> SwitchingProcess:
    """The process of a model with its modes; a model without modes has one."""
    if isinstance(model.process, SwitchingProcess):
        return model.process
    return SwitchingProcess(model.process, (Mode(),), Transitions(np.ones((1, 1))))


def in_mode(model: StateSpaceModel, mode: Mode) -> StateSpaceModel:
    """The model in one of its modes, without the others."""
    shared = {"process": switching(model).process}
    shared |= {"process_noise": model.process_noise, "observe": model.observe}
    parts = {name: getattr(mode, name) for name in shared}
    replaced = {name: part for name, part in parts.items() if part is not None}
    return dataclasses.replace(model, **(shared | replaced))


def _check_matrix(name: str, matrix: Array) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"`{name}` must be a square matrix with a row for each mode, got shape {matrix.shape}."
        )
    if not is_concrete(matrix):
        return
    values = np.asarray(matrix, float)
    rounding = 10 * len(values) * float(jnp.finfo(matrix.dtype).eps)
    sums = values.sum(1)
    if not ((values >= 0).all() and (np.abs(sums - 1) <= rounding).all()):
        raise ValueError(
            f"`{name}` must have rows of probabilities that sum to one, got\n{values}\nwhose rows "
            f"sum to {sums}."
        )
