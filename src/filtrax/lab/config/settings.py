"""The settings of an experiment, as dataclasses for `parse`."""

import dataclasses
import math
from typing import Any, Literal

import jax

from filtrax._checks import check_known
from filtrax.lab.config.filters import AbstractFilterSettings, Ekf
from filtrax.lab.config.parsing import follows
from filtrax.lab.tasks import AbstractModelSettings, AbstractTask
from filtrax.lab.tasks.builtin import DiscTask
from filtrax.losses import Loss, mixed

LIKELIHOOD_TERM = "likelihood"
"""The name of the term that pretrains a learned likelihood, in tasks with a `contrast`."""

_OF_THE_TASK: Any = None
"""Placeholder for defaults that depend on the task."""


@dataclasses.dataclass(frozen=True)
class TermSettings:
    """An additional term of a stage's objective: its name and weight.

    - `name`: one of the task's `terms`, or "likelihood", which pretrains a learned likelihood.
    - `weight`: the factor of the term.
    """

    name: str
    weight: float = 1.0


def _check_numbers(stage: "StageSettings") -> None:
    """Raises if a weight or a rate of a stage means nothing, or if the stage trains nothing."""
    rates = {f"learning_rates.{i}": rate for i, rate in enumerate(stage.learning_rates)}
    weights = {f"weight of the term {term.name!r}": term.weight for term in stage.terms}
    terms = any(weight > 0 for weight in weights.values())
    weights |= {"sensor_weight": stage.sensor_weight, "weight_decay": stage.weight_decay}
    weights |= {"loss_weight": stage.loss_weight}
    for name, value in (rates | weights).items():
        if not math.isfinite(value) or value < 0 or (name in rates and value == 0):
            wanted = "positive" if name in rates else "not negative"
            raise ValueError(f"{name} must be finite and {wanted}, got {value}.")
    if stage.loss_weight == 0 and not terms:
        raise ValueError(
            "loss_weight must be positive where no term has a weight, or the stage trains nothing."
        )
    if not 0 <= stage.sensor_warmup <= 1:
        raise ValueError(
            "sensor_warmup must be a fraction of the stage, from 0 to 1, got "
            f"{stage.sensor_warmup}."
        )
    if math.isnan(stage.clip_norm):
        raise ValueError("clip_norm must be a positive number, got nan.")
    if not stage.train:
        raise ValueError("train must name at least one part, or the stage trains nothing.")
    if stage.objective == "process" and stage.length < 2:
        raise ValueError(
            "length must be at least 2 for the objective 'process', which predicts from step to "
            f"step, got {stage.length}: the stage would train nothing."
        )


@dataclasses.dataclass(frozen=True)
class StageSettings:
    """One stage of training. The defaults are the recipe of `docs/training.md`.

    - `name`: the name of the stage in records and reports.
    - `objective`: "filter" trains through the filter; "sensor", "process" and "likelihood" train
      single parts on single readings or steps.
    - `loss`: the loss of the objective "filter".
    - `train`: the parts that train, as in `("model.sensor.noise", "model.process_noise")`.
    - `num_epochs`, `length`: passes over the data, and the number of steps of sub-sequences.
    - `frames_per_batch`: the number of sub-sequences in a batch times their length.
    - `perturbed`: draw initial states from the prior.
    - `learning_rates`: candidates; the best by validation loss is kept.
    - `warmup_steps`, `decay`: the schedule of the learning rate; "cosine" decays to zero.
    - `clip_norm`: the largest norm of a gradient; longer ones are shortened to it.
    - `sensor_warmup`, `sensor_weight`: for this fraction of the stage, the negative log
      likelihood of measurements is added to the loss with this weight, so that the filter does
      not learn to ignore them.
    - `loss_weight`, `weight_decay`: weights of the loss and of the squared parameters; the paper
      has 100 and 1e-3.
    - `terms`: additional terms of the objective. Stages that differ only in the weights of terms
      share a compiled program.
    """

    name: str = "end to end"
    objective: Literal["filter", "sensor", "process", "likelihood"] = "filter"
    loss: Literal["nll", "mse", "mixed"] = "nll"
    train: tuple[str, ...] = ("model", "filter")
    num_epochs: int = 30
    length: int = 10
    frames_per_batch: int = 320
    perturbed: bool = True
    learning_rates: tuple[float, ...] = (3e-3,)
    warmup_steps: int = 500
    decay: Literal["cosine", "constant"] = "cosine"
    clip_norm: float = 1.0
    sensor_warmup: float = 0.2
    sensor_weight: float = 1.0
    loss_weight: float = 1.0
    weight_decay: float = 0.0
    terms: tuple[TermSettings, ...] = ()

    def __post_init__(self):
        names = [term.name for term in self.terms]
        if len({*names}) < len(names):
            raise ValueError(f"terms must have different names, got {names}.")
        if self.num_epochs < 1:
            raise ValueError(f"num_epochs must be at least 1, got {self.num_epochs}.")
        if not self.learning_rates or min(self.learning_rates) <= 0:
            raise ValueError(
                f"learning_rates must be one or more positive numbers, got {self.learning_rates}."
            )
        if self.length < 1 or self.frames_per_batch < self.length:
            raise ValueError(
                "length must be at least 1 and at most frames_per_batch: "
                f"got {self.length} and {self.frames_per_batch}."
            )
        if self.clip_norm <= 0 or self.warmup_steps < 1:
            raise ValueError(
                "clip_norm must be positive and warmup_steps at least 1: "
                f"got {self.clip_norm} and {self.warmup_steps}."
            )
        _check_numbers(self)

    @property
    def batch_size(self) -> int:
        """The number of sub-sequences in a batch."""
        return self.frames_per_batch // self.length

    @property
    def program(self) -> "StageSettings":
        """The stage with defaults for numbers; stages with equal `program` can train together."""
        return StageSettings(
            objective=self.objective,
            train=self.train,
            num_epochs=self.num_epochs,
            length=self.length,
            frames_per_batch=self.batch_size * self.length,
            learning_rates=(1.0,) * len(self.learning_rates),
            weight_decay=float(self.weight_decay > 0),
            terms=tuple(TermSettings(term.name) for term in self.terms),
        )


@dataclasses.dataclass(frozen=True)
class StartSettings:
    """The start of a run: fresh parameters, or parts of another run.

    - `run`: the folder of a finished run with one member or at least `num_seeds`; "" for none.
    - `parts`: the parts to copy from it, named as in `train`.
    """

    run: str = ""
    parts: tuple[str, ...] = ("model",)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """All settings of a training run.

    - `name`: the name of the run, and of its folder below runs/; by default the kind of the task.
    - `seed`: the first seed of weights, perturbations and random numbers of filters.
    - `num_seeds`: the number of members that train at once, with consecutive seeds.
    - `task`: the data.
    - `model`: the settings of the task's model; by default those that it has by itself.
    - `filter`: the filter.
    - `start`: the run to start from, if any.
    - `stages`: the stages of training, in order.
    """

    name: str = dataclasses.field(default=_OF_THE_TASK, metadata=follows("task"))
    seed: int = 0
    num_seeds: int = 1
    task: AbstractTask = dataclasses.field(default_factory=DiscTask)
    model: AbstractModelSettings = dataclasses.field(
        default=_OF_THE_TASK, metadata=follows("task", "model_settings")
    )
    filter: AbstractFilterSettings = dataclasses.field(default_factory=Ekf)
    start: StartSettings = StartSettings()
    stages: tuple[StageSettings, ...] = (StageSettings(),)

    def __post_init__(self):
        self._take_from_task()
        if self.num_seeds < 1 or self.seed < 0 or self.seed + self.num_seeds > 2**31:
            raise ValueError(
                "seed must not be negative, num_seeds must be at least 1, and all seeds must be "
                f"below 2**31: got {self.seed} and {self.num_seeds}."
            )
        counts = {len(stage.learning_rates) for stage in self.stages} - {1}
        if len(counts) > 1:
            raise ValueError(
                "All stages must search equally many learning_rates, or one: "
                f"got {sorted(counts)} of them."
            )
        for stage in self.stages:
            if stage.length > self.task.num_steps:
                raise ValueError(
                    f"length of stage {stage.name!r} must be at most the {self.task.num_steps} "
                    f"steps of the sequences (task.num_steps), got {stage.length}."
                )
            self._check_batch(stage)
            known = [*self.task.terms] + [LIKELIHOOD_TERM] * (self.task.contrast is not None)
            what = f"terms of stage {stage.name!r} must be those of the task {self.task.kind!r}"
            check_known(what, {term.name for term in stage.terms} - {*known}, known)

    def _take_from_task(self) -> None:
        """Fills in defaults that depend on the task, and checks that the model belongs to it."""
        settings = type(self.task).model_settings
        if self.name is None:
            object.__setattr__(self, "name", self.task.kind)
        if self.model is None:
            object.__setattr__(self, "model", settings())
        if not isinstance(self.model, settings):
            raise ValueError(
                f"model must be settings of the task {self.task.kind!r}, a {settings.__name__}, "
                f"got a {type(self.model).__name__}."
            )

    def _check_batch(self, stage: StageSettings) -> None:
        if self.task.num_train is None:
            return  # training checks it when the data are read
        count = self.task.num_train * (self.task.num_steps // stage.length)
        if stage.batch_size > count:
            raise ValueError(
                f"frames_per_batch of stage {stage.name!r} must be at most {stage.length} "
                f"(length) times the {count} sub-sequences of an epoch, "
                f"got {stage.frames_per_batch}."
            )

    @property
    def program(self) -> "Experiment":
        """The experiment with defaults for all numbers that compiled programs take as arguments.

        Experiments with equal `program` differ only in numbers and data, and can train as one
        ensemble.
        """
        return dataclasses.replace(
            self,
            name="",
            seed=0,
            task=self.task.shape,
            model=self.model.program,
            filter=self.filter.program,
            start=StartSettings(),
            stages=tuple(stage.program for stage in self.stages),
        )

    @property
    def members(self) -> list[tuple[int, int]]:
        """The seed and the index of the learning rate of each member of the ensemble."""
        rates = max((len(stage.learning_rates) for stage in self.stages), default=1)
        seeds = range(self.seed, self.seed + self.num_seeds)
        return [(seed, rate) for rate in range(rates) for seed in seeds]

    def loss(self, name: str) -> Loss:
        """Returns the loss "nll", "mse" or "mixed" for beliefs of this experiment's filter."""
        # The share is traced, so that all losses share a compiled program.
        share = {"nll": 0.0, "mixed": 0.5, "mse": 1.0}[name]
        return jax.tree_util.Partial(mixed, density=self.filter.density, share=share)
