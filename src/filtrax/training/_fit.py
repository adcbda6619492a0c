"""Training one filter and model by gradient descent through the filter."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Float

from filtrax._types import Key
from filtrax.filters import AbstractFilter
from filtrax.losses import Loss
from filtrax.state_space import StateSpaceModel
from filtrax.training.data_sets import as_data_set
from filtrax.training.evaluation import ObjectiveScore
from filtrax.training.objectives import filtering
from filtrax.training.parts import describe, warn_of_hidden_parameters
from filtrax.training.protocols import Augmentation, Objective
from filtrax.training.selection import Ensemble
from filtrax.training.stages import Stage
from filtrax.training.steps import Steps, with_members, without_members
from filtrax.training.trainer import Clock, EpochRecord, Trainer
from filtrax.trajectory import Trajectory

FEWEST_STEPS_PER_CALL, MOST_STEPS_PER_CALL = 16, 1024
"""Numbers of steps for which one call of a compiled program has room."""


class History(Steps):
    """Losses and gradients of each training step, and the losses of validation.

    `gradient_norm` is the norm before clipping, `clipped_norm` the one the optimizer saw.
    `validation` has the loss before the first step and after each `callback_every` steps, and is
    empty without validation data. `best_step` is the number of steps behind the result.
    """

    validation: Float[np.ndarray, " n"]
    best_step: int


class Progress(eqx.Module):
    """Steps done, steps in all and the latest mean loss, for a progress callback.

    `validation` is the loss on the validation data, if there are any.
    """

    step: int
    num_steps: int
    loss: float
    validation: float | None = None


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


def fit(
    filt: AbstractFilter,
    model: StateSpaceModel,
    data: Trajectory,
    *,
    loss: Loss | None = None,
    objective: Objective | None = None,
    validation: Trajectory | None = None,
    train: Sequence[str] = ("model", "filter"),
    optimizer: optax.GradientTransformation,
    num_steps: int,
    batch_size: int = 32,
    augment: Augmentation | None = None,
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
    - `validation`: trajectories that choose the best state: their loss is computed before the
      first step and after each `callback_every` steps. A state that diverges then goes back to the
      best one and on with half the step size.
    - `train`: the parts to train, named from the roots "model" and "filter", as in
      `("model.sensor.noise", "filter.scaling")`. All else stays as it is, bit for bit, and so do
      given arrays (`filtrax.given`).
    - `optimizer`, `num_steps`, `batch_size`: batches are drawn without replacement, in a new
      order whenever the data are used up; data of fewer trajectories are one batch.
    - `augment`: applied to each trajectory that is drawn, for instance
      `lambda t, key: perturb(t, key=key)`.
    - `clip_norm`: gradients longer than this are shortened to it.
    - `callback`: called after each `callback_every` steps and after the last one.

    **Returns:** the filter, the model in inference mode, and the history: the best state by
    validation, or the last one without validation data. Raises `DivergenceError` when a loss or
    gradient is not finite; with validation data, when no state has a finite loss on them.
    """
    if (loss is None) == (objective is None):
        raise ValueError("`fit` needs either `loss` or `objective`, not both.")
    if num_steps < 1 or batch_size < 1 or callback_every < 1:
        raise ValueError(
            "`num_steps`, `batch_size` and `callback_every` must be at least 1, "
            f"got {num_steps}, {batch_size} and {callback_every}."
        )
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(f"`clip_norm` must be positive, got {clip_norm}.")
    data = as_data_set(data, model)
    warn_of_hidden_parameters(filt, model)
    _log("Arrays to train:\n" + describe(filt, model, train))
    if objective is None:
        assert loss is not None
        objective = filtering(loss)
    stage = Stage(
        objective=objective,
        score=ObjectiveScore(objective),
        train=tuple(train),
        length=jax.tree.leaves(data.readings)[0].shape[1],
        batch_size=min(batch_size, data.initial.shape[0]),
        optimizer=optimizer,
        perturbed=None,
        learning_rate=None,
        clip_norm=clip_norm,
        augment=augment,
    )
    order_key, key = jr.split(key)
    ensemble = _as_ensemble((stage, filt, model))
    trainer = Trainer(
        ensemble[0],
        ensemble[1],
        ensemble[2],
        [data],
        [] if validation is None else [as_data_set(validation, model)],
        np.zeros((1, data.initial.shape[1])),
        key[None],
        order_key,
        Clock(num_steps, callback_every, _steps_per_call(callback_every), any_number=True),
    )
    state, record = trainer.begin()
    records = [record]
    while not trainer.finished(state):
        state, record = trainer.epoch(state)
        records.append(record)
        if validation is None and not np.isfinite([record.loss, record.gradient_norm]).all():
            break
        _tell(records, callback, num_steps)
    parts, history = _alone(trainer, state, filt, model), _history(trainer, records, state)
    finite = np.isfinite(history.loss) & np.isfinite(history.gradient_norm)
    if not finite.all() and not np.isfinite(history.validation).any():
        failed = int(np.argmin(finite))
        steps = eqx.tree_at(_steps, history, [array[: failed + 1] for array in _steps(history)])
        raise DivergenceError(failed, *parts, steps)
    return *parts, history


def _steps_per_call(callback_every: int) -> int:
    """Room for the steps between callbacks: a power of two, so that few numbers recompile."""
    room = 2 ** (callback_every - 1).bit_length()
    return min(max(room, FEWEST_STEPS_PER_CALL), MOST_STEPS_PER_CALL)


def _tell(
    records: list[EpochRecord], callback: Callable[[Progress], None] | None, num_steps: int
) -> None:
    """Tells of a rollback, and of progress."""
    before, last = records[-2:]
    if last.rollbacks > before.rollbacks:
        _log(
            f"Training diverged before step {last.step} and goes on from its best state with half "
            f"the step size (rollback {last.rollbacks[0]})."
        )
    if callback is not None:
        loss = last.validation.get("loss")
        validation = None if loss is None else float(loss[0])
        callback(Progress(last.step, num_steps, float(last.loss[0]), validation))


def _steps(steps: Steps) -> list[Any]:
    return [steps.loss, steps.gradient_norm, steps.clipped_norm]


def _history(trainer: Trainer, records: list[EpochRecord], state: Ensemble) -> History:
    columns = zip(*(_steps(record.steps) for record in records if record.steps), strict=True)
    losses = [record.validation["loss"][0] for record in records if record.validation]
    best = int(state.best_epoch[0]) * trainer.steps_per_epoch
    return History(
        *(np.concatenate([part[0] for part in column]) for column in columns),
        validation=np.asarray(losses),
        best_step=min(best, trainer.clock.num_steps),
    )


# One program, and not one for every array.
_as_ensemble, _as_member = eqx.filter_jit(with_members), eqx.filter_jit(without_members)


def _alone(trainer: Trainer, state: Ensemble, filt: Any, model: Any) -> tuple[Any, Any]:
    """The filter and the model of the only member; what was not trained is what it was."""
    trained = _as_member(eqx.filter(trainer.best(state), trainer.trained))
    filt, model = eqx.combine(trained, eqx.filter((filt, model), trainer.trained, inverse=True))
    return filt, eqx.nn.inference_mode(model)


def _log(text: str) -> None:
    """Logs at level INFO; a program that never set up logging sees it, too."""
    logger = logging.getLogger("filtrax")
    if logger.level == logging.NOTSET and not logger.hasHandlers():
        record = logger.makeRecord(logger.name, logging.INFO, "", 0, text, (), None)
        logging.StreamHandler().handle(record)
    else:
        logger.info(text)
