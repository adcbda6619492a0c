"""Training by gradient descent through the filter."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from filtrax import _hooks
from filtrax._types import Key
from filtrax.filters import AbstractFilter
from filtrax.filters._run import check_known_numbers, check_sequence
from filtrax.losses import Loss
from filtrax.state_space import StateSpaceModel
from filtrax.training.objectives import Objective, filtering
from filtrax.training.optimizers import comparable
from filtrax.training.parts import describe, trainable, warn_of_hidden_parameters
from filtrax.training.step import Augment, Learner, Recipe, update
from filtrax.trajectory import TIMED, Trajectory, known_states


class History(eqx.Module):
    """Losses and gradients of each training step.

    `gradient_norm` is the norm before clipping, `clipped_norm` the one the optimizer saw.
    """

    loss: np.ndarray
    gradient_norm: np.ndarray
    clipped_norm: np.ndarray


class Progress(eqx.Module):
    """Steps done, steps in all and the latest mean loss, for a progress callback."""

    step: int
    num_steps: int
    loss: float


class DivergenceError(RuntimeError):
    """Training met a loss or gradient that is not finite.

    `filt` and `model` are as they were before that step; `history` ends with it.
    """

    def __init__(self, step: int, filt: Any, model: Any, history: History):
        super().__init__(
            f"Training diverged in step {step}: the loss or its gradient is not finite. The "
            "parameters before that step are in the exception's `filt` and `model`. Lower the "
            "learning rate, clip gradients with `clip_norm`, raise noise floors, or train on "
            "shorter sequences first."
        )
        self.step, self.filt, self.model, self.history = step, filt, model, history


class _State(eqx.Module):
    """The state of the loop, which a step hands to the next."""

    learner: Learner
    step: Int[Array, ""]
    diverged: Bool[Array, ""]
    records: dict[str, Float[Array, " steps"]]


def fit(
    filt: AbstractFilter,
    model: StateSpaceModel,
    data: Trajectory,
    *,
    loss: Loss | None = None,
    objective: Objective | None = None,
    train: Sequence[str] = ("model", "filter"),
    optimizer: optax.GradientTransformation,
    num_steps: int,
    batch_size: int = 32,
    augment: Augment | None = None,
    clip_norm: float | None = None,
    callback: Callable[[Progress], None] | None = None,
    callback_every: int = 100,
    key: Key,
) -> tuple[Any, Any, History]:
    """Minimizes an objective over the named parts of a filter and a model.

    Before the first step it logs the names and sizes of all arrays that it trains, at level INFO of
    the logger "filtrax", and on the error stream where no logging is set up;
    `logging.getLogger("filtrax").setLevel("WARNING")` switches that off.

    **Arguments:**

    - `data`: trajectories with a leading axis (`trajectory.stack` makes them), or a single one.
    - `loss`, `objective`: the function to minimize; a loss is short for `filtering(loss)`.
    - `train`: the parts to train, named from the roots "model" and "filter", as in
      `("model.sensor.noise", "filter.scaling")`. All else stays as it is, bit for bit, and so do
      given arrays (`filtrax.given`).
    - `optimizer`, `num_steps`, `batch_size`: batches are drawn without replacement, in a new
      order whenever the data are used up; data of fewer trajectories are one batch.
    - `augment`: applied to each trajectory that is drawn, for instance
      `lambda t, key: perturb(t, key=key)`.
    - `clip_norm`: gradients longer than this are shortened to it.
    - `callback`: called about every `callback_every` steps and after the last one.

    **Returns:** the filter, the model in inference mode, and the history. Raises `DivergenceError`
    when a loss or gradient is not finite.
    """
    if (loss is None) == (objective is None):
        raise ValueError("`fit` needs either `loss` or `objective`, not both.")
    if num_steps < 1 or batch_size < 1 or callback_every < 1:
        raise ValueError(
            "`num_steps`, `batch_size` and `callback_every` must be at least 1, "
            f"got {num_steps}, {batch_size} and {callback_every}."
        )
    if clip_norm is not None and clip_norm <= 0:
        raise ValueError(f"`clip_norm` must be positive, got {clip_norm}.")
    data = jax.device_put(as_data_set(data, model))
    model = eqx.nn.inference_mode(model, value=False)
    warn_of_hidden_parameters(filt, model)
    parameters, rest = eqx.partition((filt, model), trainable(filt, model, train))
    _log("Arrays to train:\n" + describe(filt, model, train))
    if objective is None:
        assert loss is not None
        objective = filtering(loss)
    recipe = Recipe(objective, comparable(optimizer), augment, clip_norm)
    batch_size = min(batch_size, data.initial.shape[0])
    names = ("loss", "gradient_norm", "clipped_norm")
    state = _State(
        learner=Learner(parameters, optimizer.init(parameters)),
        step=jnp.asarray(0),
        diverged=jnp.asarray(False),
        records={name: jnp.full(num_steps, jnp.nan, data.initial.dtype) for name in names},
    )
    accelerate = _hooks.accelerated()
    done = 0
    while done < num_steps:
        end = min(done + callback_every, num_steps)
        arguments = (recipe, rest, data, batch_size, key, state, jnp.asarray(end), accelerate)
        state = _train_until(*arguments)
        if state.diverged:
            failed = int(state.step) - 1
            history = _history(state.records, failed + 1)
            raise DivergenceError(failed, *_finished(state.learner.parameters, rest), history)
        if callback is not None:
            recent = float(np.mean(np.asarray(state.records["loss"][done:end])))
            callback(Progress(end, num_steps, recent))
        done = end
    return *_finished(state.learner.parameters, rest), _history(state.records, num_steps)


@eqx.filter_jit
def _train_until(recipe, rest, data, batch_size, key, state, end, accelerate):
    # A loop whose end is traced: one compilation serves chunks of any length.
    with _hooks.acceleration(accelerate):
        return jax.lax.while_loop(
            lambda state: (state.step < end) & ~state.diverged,
            lambda state: _step(recipe, rest, data, batch_size, key, state),
            state,
        )


def _step(recipe, rest, data, batch_size, key, state):
    order_key, step_key = jr.split(key)
    num_steps = state.records["loss"].size
    progress = (state.step / num_steps).astype(data.initial.dtype)
    batch = _draw(data, batch_size, state.step, order_key)
    step_key = jr.fold_in(step_key, state.step)
    learner, outcome = update(recipe, rest, state.learner, batch, progress, key=step_key)
    records = {
        name: record.at[state.step].set(getattr(outcome, name).astype(record.dtype))
        for name, record in state.records.items()
    }
    return _State(learner, state.step + 1, ~outcome.finite, records)


def _draw(data: Trajectory, size: int, step: Array, key: Key) -> Trajectory:
    """The batch of a step: the data in an order that changes with each pass over them."""
    total = data.initial.shape[0]
    per_pass = total // size
    order = jr.permutation(jr.fold_in(key, step // per_pass), total)
    numbers = jax.lax.dynamic_slice_in_dim(order, (step % per_pass) * size, size)
    return jax.tree.map(lambda leaf: leaf[numbers], data)


def as_data_set(data: Trajectory, model: StateSpaceModel) -> Trajectory:
    """The data with a leading axis, or an error that says what is wrong with them.

    NumPy's arrays stay what they are: images may be too many to be on a device twice.
    """
    if not isinstance(data, Trajectory):
        raise TypeError(f"`data` must be a Trajectory, got a {type(data).__name__}.")
    data = jax.tree.map(lambda leaf: leaf if eqx.is_array(leaf) else np.asarray(leaf), data)
    if data.initial.ndim == 1:
        data = jax.tree.map(lambda leaf: leaf[None], data)
    size = model.state_space.size
    if data.initial.ndim != 2 or size not in (None, data.initial.shape[1]):
        raise ValueError(
            f"`data.initial` must have shape (trajectories, {size or 'components'}), got "
            f"{data.initial.shape}."
        )
    count, size = data.initial.shape
    for leaf in jax.tree.leaves(data):
        if leaf.shape[:1] != (count,):
            raise ValueError(
                f"All arrays of `data` must have a leading axis of {count} trajectories like "
                f"`data.initial`, got an array of shape {leaf.shape}."
            )
    if data.states is not None and data.states.shape[-1] != size:
        raise ValueError(
            f"`data.states` must have {size} components, got an array of shape {data.states.shape}."
        )
    flat = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
        {name: getattr(data, name) for name in TIMED},
    )
    axes = ("trajectory", "step")
    check_known_numbers("data.inputs", data.inputs, axes)
    if data.states is not None:
        labels = np.broadcast_to(known_states(data.states, data.labelled)[1], data.states.shape)
        check_known_numbers("data.states", data.states, axes, known=labels)
    check_sequence(**flat)
    return data


def _finished(parameters: Any, rest: Any) -> tuple[Any, Any]:
    filt, model = eqx.combine(parameters, rest)
    return filt, eqx.nn.inference_mode(model)


def _log(text: str) -> None:
    """Logs at level INFO; a program that never set up logging sees it, too."""
    logger = logging.getLogger("filtrax")
    if logger.level == logging.NOTSET and not logger.hasHandlers():
        record = logger.makeRecord(logger.name, logging.INFO, "", 0, text, (), None)
        logging.StreamHandler().handle(record)
    else:
        logger.info(text)


def _history(records: dict[str, Array], count: int) -> History:
    return History(**{name: np.asarray(record[:count]) for name, record in records.items()})
