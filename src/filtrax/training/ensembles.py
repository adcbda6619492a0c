"""Training an ensemble in epochs: validation, selection of the best state, rollback.

The members of an ensemble differ in their seed, and perhaps in their hyper-parameters. They train
at once in one compiled program and see the same batches, so that readings are made once and the
first convolution is one for all; weights, perturbations and keys are their own. Members may also
be spread over several data sets of the same shape.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int

from filtrax import _hooks
from filtrax._types import Keys
from filtrax.filters import AbstractFilter
from filtrax.sensors import NetworkSensor, PrecomputedFeatures
from filtrax.state_space import StateSpaceModel
from filtrax.training.data_sets import (
    as_data_sets,
    check_data_sets,
    first_set,
    members_of_set,
    stacked,
)
from filtrax.training.devices import Devices, place
from filtrax.training.epochs import train_steps
from filtrax.training.evaluation import (
    encode,
    evaluate,
    has_frozen_encoder,
    with_encoder,
    without_images,
)
from filtrax.training.objectives import needs_readings
from filtrax.training.parts import trainable, warn_of_hidden_parameters
from filtrax.training.selection import Ensemble, select
from filtrax.training.stages import Stage
from filtrax.training.step import Learner
from filtrax.trajectory import Trajectory


class EpochRecord(eqx.Module):
    """Means over the steps of an epoch, and its validation, for each member."""

    epoch: int
    step: int
    loss: np.ndarray
    gradient_norm: np.ndarray
    learning_rate: np.ndarray
    validation: dict[str, np.ndarray]
    best_loss: np.ndarray
    rollbacks: np.ndarray


class Training:
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
        data_sets, self.validation = as_data_sets(data, model), as_data_sets(validation, model)
        check_data_sets(data_sets, self.validation, len(seeds))
        stage.check(data_sets[0])
        warn_of_hidden_parameters(filt, model)
        model = eqx.nn.inference_mode(model, value=False)
        trained = trainable(filt, model, stage.train)
        self.placement = place(devices, len(seeds), stage.batch_size)
        self.stage = self.placement.members(_strong(stage.for_members(len(seeds))))
        self.perturbations = self.placement.everywhere(jax.device_put(np.asarray(perturbations)))
        self.keys = self.placement.members(_keys(np.asarray(seeds)))
        self.readings = self.validation_readings = self.encoder = None
        # Readings that are augmented must be encoded anew each time.
        fixed = stage.augment is None or getattr(stage.augment, "keeps_readings", False)
        if fixed and not (needs_readings(stage.objective) or needs_readings(stage.score)):
            data_sets = [without_images(data, model) for data in data_sets]
            self.validation = [without_images(data, model) for data in self.validation]
        elif (
            fixed
            and has_frozen_encoder(model, data_sets[0], trained[1])
            and self.validation[0].observed is None
        ):
            assert isinstance(model.sensor, NetworkSensor)
            tell("The encoder is not trained: its features of all readings are computed first.")
            self.encoder = model.sensor.encoder
            self.readings, data_sets = self._features(data_sets, model)
            self.validation_readings, self.validation = self._features(self.validation, model)
            model = with_encoder(model, PrecomputedFeatures())
            trained = trainable(filt, model, stage.train)
        self.data = self.placement.everywhere(stacked(data_sets))
        self.validation = self.placement.everywhere(jax.device_put(self.validation))
        state = self.placement.members(_strong((filt, model)))
        self.parameters, self.rest = eqx.partition(state, trained)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches of an epoch."""
        return self.stage.steps_per_epoch(jax.eval_shape(first_set, self.data))

    @property
    def steps_per_call(self) -> int:
        """The number of steps in one call of a compiled program: an epoch, or one on a CPU."""
        # XLA's convolutions are several times slower inside of its loops on a CPU.
        return 1 if jax.default_backend() == "cpu" else self.steps_per_epoch

    def begin(self) -> tuple[Ensemble, EpochRecord]:
        """The ensemble before the first epoch."""
        ensemble = self.template()
        validation = self._validate(ensemble.learner)
        ensemble = dataclasses.replace(
            ensemble, best_loss=validation["loss"], start_loss=validation["loss"]
        )
        nothing = np.full(ensemble.rate.shape, np.nan, ensemble.rate.dtype)
        return ensemble, self._record(ensemble, nothing, nothing, validation)

    def template(self) -> Ensemble:
        """An ensemble that is not validated yet, and the shape of all that follow from it."""
        memories = _memories(self.stage.optimizer, self.parameters)
        learner = Learner(self.parameters, memories)
        # From the host, because on a device every shape of zeros is a program.
        ones = jax.device_put(np.ones(len(self.keys), self.data.initial.dtype))
        none = jax.device_put(np.zeros(ones.shape, int))
        return Ensemble(
            learner=learner,
            best=learner,
            best_loss=ones,
            best_epoch=none,
            start_loss=ones,
            rate=ones,
            rollbacks=none,
            epoch=jax.device_put(np.zeros((), int)),
        )

    def epoch(
        self, ensemble: Ensemble, on_step: Callable[[int], None] | None = None
    ) -> tuple[Ensemble, EpochRecord]:
        """The ensemble after one more epoch, and the record of the epoch.

        `on_step` is told the number of steps done whenever some are.
        """
        ensemble = self._placed(ensemble)
        learner, finite = ensemble.learner, jax.device_put(np.ones(ensemble.rate.shape, bool))
        outcomes = []
        for first in range(0, self.steps_per_epoch, self.steps_per_call):
            arguments = self._arguments(ensemble, learner, finite, first)
            learner, finite, outcome = train_steps(*arguments)
            outcomes.append(outcome)
            if on_step is not None:
                jax.block_until_ready(outcome)
                on_step(first + self.steps_per_call)
        loss, norm = _means(outcomes)
        validation = self._validate(learner)
        ensemble = select(ensemble, learner, finite, validation["loss"])
        return ensemble, self._record(ensemble, loss, norm, validation)

    def lower(self) -> Any:
        """The program of a call, to be compiled and asked for its costs and its memory."""
        ensemble = self._placed(self.template())
        finite = jax.device_put(np.ones(ensemble.rate.shape, bool))
        arguments = self._arguments(ensemble, ensemble.learner, finite, 0)
        return cast(Any, train_steps).lower(*arguments).lowered

    def _arguments(self, ensemble: Ensemble, learner: Learner, finite: Array, first: int) -> tuple:
        """The arguments of `train_steps` for the steps from number `first` on."""
        return (
            self.stage.without_epochs(),
            self.rest,
            self.data,
            self.readings,
            learner,
            finite,
            (ensemble.rate, ensemble.rollbacks, ensemble.epoch),
            np.asarray(first),
            self.steps_per_call,
            np.asarray(self.stage.num_epochs),
            self.keys,
            self.placement,
            _hooks.accelerated(),
        )

    def _placed(self, ensemble: Ensemble) -> Ensemble:
        """The ensemble on its devices, wherever it comes from."""
        place = lambda leaf: (  # noqa: E731
            self.placement.members(leaf) if leaf.ndim else self.placement.everywhere(leaf)
        )
        return jax.tree.map(place, ensemble)

    def finished(self, ensemble: Ensemble) -> bool:
        """True if all epochs are done."""
        return int(ensemble.epoch) >= self.stage.num_epochs

    def best(self, ensemble: Ensemble) -> tuple[Any, Any]:
        """The filters and models at their lowest validation loss."""
        state = eqx.combine(ensemble.best.parameters, self.rest)
        filt, model = self.placement.gathered(state)
        if self.encoder is not None:
            model = with_encoder(model, self.encoder)
        return filt, eqx.nn.inference_mode(model)

    def _validate(self, learner: Learner) -> dict[str, Array]:
        filt, model = eqx.combine(learner.parameters, self.rest)

        def score(model, data, score, filt, keys, readings):
            return evaluate(
                score,
                filt,
                model,
                data,
                self.perturbations,
                keys,
                readings=readings,
                placement=self.placement,
            )

        others = (self.stage.score, filt, self.keys, self.validation_readings)
        scores = self._on_sets(score, self.validation, model, *others)
        return {name: values.mean((1, 2)) for name, values in scores.items()}

    def _features(
        self, data_sets: list[Trajectory], model: StateSpaceModel
    ) -> tuple[Any, list[Trajectory]]:
        """The features of all members, and the data sets without the readings behind them."""
        placed = self.placement.everywhere(data_sets)
        features = self.placement.members(self._on_sets(encode, placed, model, self.keys))
        return features, [without_images(data, model) for data in data_sets]

    def _on_sets(
        self, function: Callable, data_sets: Sequence[Trajectory], model: Any, *arguments: Any
    ) -> Any:
        """`function(model, data, *arguments)` of the members of each data set, put together."""
        # A loop, because convolutions with another kernel for each data set are slow on a CPU.
        outputs = []
        for i, data in enumerate(data_sets):
            own = [members_of_set(tree, len(data_sets), i) for tree in (model, *arguments)]
            outputs.append(function(own[0], data, *own[1:]))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *outputs)

    def _record(self, ensemble, loss, norm, validation) -> EpochRecord:
        epoch = int(ensemble.epoch)
        arrays = (loss, norm, ensemble.rate, self.stage.learning_rate, validation)
        loss, norm, factor, rate, validation = jax.tree.map(np.asarray, arrays)
        return EpochRecord(
            epoch=epoch,
            step=epoch * self.steps_per_epoch,
            loss=loss,
            gradient_norm=norm,
            learning_rate=factor * rate,
            validation=validation,
            best_loss=np.asarray(ensemble.best_loss),
            rollbacks=np.asarray(ensemble.rollbacks),
        )


@eqx.filter_jit  # one program, and not one for every array
def _memories(optimizer: Any, parameters: Any) -> Any:
    """The memory of the optimizer for each member, before the first step."""
    return eqx.filter_vmap(optimizer.init)(parameters)


@jax.jit
def _means(outcomes: list[tuple[Array, Array]]) -> list[Array]:
    """The mean over all steps of an epoch, whose calls each returned some."""
    return [jnp.concatenate(steps).mean(0) for steps in zip(*outcomes, strict=True)]


@jax.jit
def _keys(seeds: Int[Array, " m"]) -> Keys:
    return jax.vmap(jr.key)(seeds)


def _strong(tree: Any) -> Any:
    """Makes weak types strong, so that the second epoch does not recompile."""

    def strong(leaf: Any) -> Any:
        return jax.lax.convert_element_type(leaf, leaf.dtype) if eqx.is_array(leaf) else leaf

    return jax.tree.map(strong, tree)
