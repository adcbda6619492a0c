"""The trainer under `fit` and `Training`: steps, validation, the best state, rollback.

It trains the members of an ensemble, of which `fit` has one. They differ in their keys, and perhaps
in their numbers; they train at once in one compiled program and see the same batches, so that
readings are made once and the first convolution is one for all.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from filtrax import _hooks
from filtrax._types import Key, Keys
from filtrax.sensors import NetworkSensor, PrecomputedFeatures
from filtrax.state_space import StateSpaceModel
from filtrax.training.data_sets import check_data_sets, members_of_set, stacked
from filtrax.training.devices import ONE, Placement
from filtrax.training.evaluation import (
    encode,
    evaluate,
    has_frozen_encoder,
    with_encoder,
    without_images,
)
from filtrax.training.parts import trainable
from filtrax.training.protocols import keeps_readings, needs_readings
from filtrax.training.selection import Ensemble, latest, select
from filtrax.training.stages import Stage
from filtrax.training.steps import Course, Learner, Steps, train_steps
from filtrax.trajectory import Trajectory


class EpochRecord(eqx.Module):
    """Means over the steps of an epoch, and its validation, for each member.

    `steps` has the single steps; before the first epoch there are none.
    """

    epoch: int
    step: int
    loss: np.ndarray
    gradient_norm: np.ndarray
    learning_rate: np.ndarray
    validation: dict[str, np.ndarray]
    best_loss: np.ndarray
    rollbacks: np.ndarray
    steps: Steps | None = None


class Clock(NamedTuple):
    """How many steps there are.

    **Attributes:**

    - `num_steps`: in all.
    - `per_epoch`: between validations; the last epoch may have fewer.
    - `per_call`: in one call of a compiled program, at most.
    - `any_number`: true if one program shall serve all numbers of steps.
    """

    num_steps: int
    per_epoch: int
    per_call: int
    any_number: bool = False


class Trainer:
    """Trains the members of an ensemble; see `Training` for the arguments.

    `keys` are those of the members, `order_key` is that of the order of batches. `trained` is the
    mask of the arrays that train.
    """

    def __init__(
        self,
        stage: Stage,
        filt: Any,
        model: StateSpaceModel,
        data: Sequence[Trajectory],
        validation: Sequence[Trajectory],
        perturbations: Any,
        keys: Keys,
        order_key: Key,
        clock: Clock,
        *,
        placement: Placement = ONE,
        tell: Callable[[str], None] = lambda sentence: None,
    ):
        check_data_sets(data, validation, len(keys))
        self.clock, self.placement = clock, placement
        model = eqx.nn.inference_mode(model, value=False)
        self.trained = trained = trainable(filt, model, stage.train)
        self.perturbations = placement.everywhere(jax.device_put(np.asarray(perturbations)))
        self.keys, self.validation = placement.members(keys), list(validation)
        self.readings = self.validation_readings = self.encoder = None
        # Readings that are augmented must be encoded anew each time.
        fixed, used = keeps_readings(stage.augment), (stage.objective, stage.score)
        if fixed and not any(map(needs_readings, used)):
            data = [without_images(one, model) for one in data]
            self.validation = [without_images(one, model) for one in validation]
        elif (
            fixed
            and has_frozen_encoder(model, data[0], trained[1])
            and all(one.observed is None for one in validation[:1])
        ):
            assert isinstance(model.sensor, NetworkSensor)
            tell("The encoder is not trained: its features of all readings are computed first.")
            self.encoder = model.sensor.encoder
            self.readings, data = self._features(data, model)
            if validation:
                self.validation_readings, self.validation = self._features(validation, model)
            model = with_encoder(model, PrecomputedFeatures())
            trained = trainable(filt, model, stage.train)
        self.stage = placement.members(_strong(stage))
        state = placement.members(_strong((filt, model)))
        self.parameters, rest = eqx.partition(state, trained)
        self.validation = placement.everywhere(jax.device_put(self.validation))
        self.course = Course(
            stage=self.stage.without_epochs(),
            rest=rest,
            data=placement.everywhere(stacked(data)),
            readings=self.readings,
            order_key=placement.everywhere(order_key),
            num_steps=jax.device_put(np.asarray(clock.num_steps)),
            per_epoch=jax.device_put(np.asarray(clock.per_epoch)),
            placement=placement,
        )

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches of an epoch."""
        return self.clock.per_epoch

    @property
    def steps_per_call(self) -> int:
        """The largest number of steps in one call of a compiled program."""
        return self.clock.per_call

    def begin(self) -> tuple[Ensemble, EpochRecord]:
        """The ensemble before the first epoch."""
        ensemble = self.template()
        validation = self._validate(ensemble.learner)
        if validation:
            loss = validation["loss"]
            ensemble = dataclasses.replace(ensemble, best_loss=loss, start_loss=loss)
        return ensemble, self._record(ensemble, [], validation)

    def template(self) -> Ensemble:
        """An ensemble that is not validated yet, and the shape of all that follow from it."""
        learner = Learner(self.parameters, _memories(self.stage.optimizer, self.parameters))
        # From the host, because on a device every shape of zeros is a program.
        ones = jax.device_put(np.ones(len(self.keys), self.course.data.initial.dtype))
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
        stretches, total = [], self._length(ensemble)
        for done in range(0, total, self.steps_per_call):
            count = min(self.steps_per_call, total - done)
            arguments = self._arguments(ensemble, learner, finite, done, count)
            learner, finite, steps = train_steps(*arguments)
            stretches.append((steps, count))
            if on_step is not None:
                jax.block_until_ready(steps)
                on_step(done + count)
        validation = self._validate(learner)
        if validation:
            ensemble = select(ensemble, learner, finite, validation["loss"])
        else:
            ensemble = latest(ensemble, learner)
        return ensemble, self._record(ensemble, stretches, validation)

    def _length(self, ensemble: Ensemble) -> int:
        """The number of steps of the present epoch."""
        if self.clock.num_steps % self.steps_per_epoch == 0:
            return self.steps_per_epoch
        left = self.clock.num_steps - int(ensemble.epoch) * self.steps_per_epoch
        return min(self.steps_per_epoch, left)

    def lower(self) -> Any:
        """The program of a call, to be compiled and asked for its costs and its memory."""
        ensemble = self._placed(self.template())
        finite = jax.device_put(np.ones(ensemble.rate.shape, bool))
        arguments = self._arguments(ensemble, ensemble.learner, finite, 0, self.steps_per_call)
        return cast(Any, train_steps).lower(*arguments).lowered

    def _arguments(
        self, ensemble: Ensemble, learner: Learner, finite: Array, done: int, count: int
    ) -> tuple:
        """The arguments of `train_steps` for some steps of an epoch, `done` of which are done."""
        # After a rollback other random numbers follow. Without validation there is none.
        keys = _folded(self.keys, ensemble.rollbacks) if self.validation else self.keys
        return (
            self.course,
            learner,
            finite,
            ensemble.rate,
            keys,
            ensemble.epoch,
            np.asarray(done),
            np.asarray(count) if self.clock.any_number else count,
            self.steps_per_call,
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
        return int(ensemble.epoch) * self.steps_per_epoch >= self.clock.num_steps

    def best(self, ensemble: Ensemble) -> tuple[Any, Any]:
        """The filters and models at their lowest validation loss."""
        state = eqx.combine(ensemble.best.parameters, self.course.rest)
        filt, model = self.placement.gathered(state)
        if self.encoder is not None:
            model = with_encoder(model, self.encoder)
        return filt, eqx.nn.inference_mode(model)

    def _validate(self, learner: Learner) -> dict[str, Array]:
        """The means of all scores for each member; nothing without validation data."""
        if not self.validation:
            return {}
        filt, model = eqx.combine(learner.parameters, self.course.rest)
        others = (self.stage.score, filt, self.keys, self.validation_readings)
        scores = self._on_sets(self._score, self.validation, model, *others)
        return {name: values.mean((1, 2)) for name, values in scores.items()}

    def _score(self, model, data, score, filt, keys, readings) -> Any:
        options = {"readings": readings, "placement": self.placement}
        return evaluate(score, filt, model, data, self.perturbations, keys, **options)

    def _features(
        self, data_sets: Sequence[Trajectory], model: StateSpaceModel
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

    def _record(self, ensemble, stretches, validation) -> EpochRecord:
        steps = _joined(stretches) if stretches else None
        epoch = int(ensemble.epoch)
        rate = 1.0 if self.stage.learning_rate is None else self.stage.learning_rate
        nothing = np.full(ensemble.rate.shape, np.nan, ensemble.rate.dtype)
        validation = {name: np.asarray(values) for name, values in validation.items()}
        return EpochRecord(
            epoch=epoch,
            step=min(epoch * self.steps_per_epoch, self.clock.num_steps),
            loss=nothing if steps is None else np.asarray(steps.loss).mean(1),
            gradient_norm=nothing if steps is None else np.asarray(steps.gradient_norm).mean(1),
            learning_rate=np.asarray(ensemble.rate) * np.asarray(rate),
            validation=validation,
            best_loss=np.asarray(ensemble.best_loss),
            rollbacks=np.asarray(ensemble.rollbacks),
            steps=steps,
        )


@eqx.filter_jit  # one program, and not one for every array
def _memories(optimizer: Any, parameters: Any) -> Any:
    """The memory of the optimizer for each member, before the first step."""
    return eqx.filter_vmap(optimizer.init)(parameters)


@jax.jit
def _folded(keys: Keys, rollbacks: Array) -> Keys:
    return jax.vmap(jr.fold_in)(keys, rollbacks)


def _joined(stretches: Sequence[tuple[Steps, int]]) -> Steps:
    """The steps of several calls, each of which made the first ones of its record."""
    made = [jax.tree.map(lambda leaf, n=n: np.asarray(leaf)[:, :n], s) for s, n in stretches]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *made)


def _strong(tree: Any) -> Any:
    """Makes weak types strong, so that the second epoch does not recompile."""

    def strong(leaf: Any) -> Any:
        return jax.lax.convert_element_type(leaf, leaf.dtype) if eqx.is_array(leaf) else leaf

    return jax.tree.map(strong, tree)
