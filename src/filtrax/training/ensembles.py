"""Training an ensemble in epochs: validation, selection of the best state, rollback."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int

from filtrax._types import Keys
from filtrax.filters import AbstractFilter
from filtrax.state_space import StateSpaceModel
from filtrax.training.data_sets import as_data_sets
from filtrax.training.devices import Devices, place
from filtrax.training.parts import warn_of_hidden_parameters
from filtrax.training.stages import Stage
from filtrax.training.trainer import Clock, Trainer
from filtrax.trajectory import Trajectory

ORDER_SEED = 2021
"""The seed of the order of batches, the same for all members and for runs with other seeds."""


class Training(Trainer):
    """One stage of training of one ensemble.

    ```python
    training = Training(stage, filt, model, data, validation, perturbations, seeds)
    ensemble, record = training.begin()
    while not training.finished(ensemble):
        ensemble, record = training.epoch(ensemble)
    filt, model = training.best(ensemble)
    ```

    `filt` and `model` are ensembles: their arrays have a leading axis of members, as
    `eqx.filter_vmap(build)(keys)` makes them. A member whose loss or gradient is not finite, or
    that loses half of what it had learned, is set back to its best state and goes on with half
    the learning rate and new random numbers. An encoder that is not trained runs once, before
    the first epoch, or never if nothing needs readings.

    `data` and `validation` may be lists of data sets of the same shapes. The first members then
    train on the first one, the next ones on the second, and so on, equally many on each.

    `devices` are those to train on at once: "one", "all" or a list. The numbers are the same but
    for the order of sums (`filtrax.training.devices`). `tell` is called with a sentence before
    anything that may take long without a sign of life.
    """

    def __init__(
        self,
        stage: Stage,
        filt: AbstractFilter,
        model: StateSpaceModel,
        data: Trajectory | Sequence[Trajectory],
        validation: Trajectory | Sequence[Trajectory],
        perturbations: Any,
        seeds: Sequence[int],
        *,
        devices: Devices = "one",
        tell: Callable[[str], None] = lambda sentence: None,
    ):
        data, validation = as_data_sets(data, model), as_data_sets(validation, model)
        stage.check(data[0])
        warn_of_hidden_parameters(filt, model)
        per_epoch = stage.steps_per_epoch(data[0])
        # XLA's convolutions are several times slower inside of its loops on a CPU.
        per_call = 1 if jax.default_backend() == "cpu" else per_epoch
        super().__init__(
            stage.for_members(len(seeds)),
            filt,
            model,
            data,
            validation,
            perturbations,
            _keys(np.asarray(seeds)),
            jr.key(ORDER_SEED),
            Clock(stage.num_epochs * per_epoch, per_epoch, per_call),
            placement=place(devices, len(seeds), stage.batch_size),
            tell=tell,
        )


@jax.jit
def _keys(seeds: Int[Array, " m"]) -> Keys:
    return jax.vmap(jr.key)(seeds)
