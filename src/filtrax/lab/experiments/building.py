"""Builds filters, models and training stages from the settings of experiments."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from filtrax.lab.config.settings import LIKELIHOOD_TERM, Experiment, StageSettings
from filtrax.lab.tasks.parts import build_model
from filtrax.training.evaluation import ObjectiveScore, Score, tracking
from filtrax.training.objectives import (
    LikelihoodContrast,
    Objective,
    StepSchedule,
    filtering,
    l2,
    process_nll,
    sensor_nll,
    weighted,
)
from filtrax.training.stages import Stage
from filtrax.trajectory import Trajectory


def build_ensemble(experiment: Experiment, data: Trajectory) -> tuple[Any, Any]:
    """Builds filters and models with a leading axis of members; equal seeds start equal."""
    seeds = np.asarray([seed for seed, _ in experiment.members])
    # Small random draws compile faster for the CPU than for a GPU.
    with jax.default_device(_host()):
        example = jax.tree.map(np.asarray, _first(data))
        built = _build_once(experiment, example, seeds)
    # Go through NumPy, because `device_put` with an explicit device would commit the arrays, and
    # programs with committed arguments recompile. `jnp.asarray` would compile for every shape.
    move = lambda leaf: jax.device_put(np.asarray(leaf))  # noqa: E731
    return jax.tree.map(lambda leaf: move(leaf) if eqx.is_array(leaf) else leaf, built)


def _host() -> Any:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:  # the user has disabled the CPU platform
        return jax.devices()[0]


def join(parts: Sequence[Any]) -> Any:
    """Concatenates ensembles of equal structure along their leading axis of members.

    Raises a `ValueError` if they are not one program: `program` of their settings said so wrongly.
    """
    if len(parts) == 1:
        return parts[0]

    def joined(path: Any, *leaves: Any) -> Any:
        if eqx.is_array(leaves[0]):
            return jnp.concatenate(leaves)
        if any(leaf is not leaves[0] and leaf != leaves[0] for leaf in leaves):
            raise ValueError(
                f"Experiments that train together must have one program, but {leaves[0]!r} and "
                f"{leaves[-1]!r} differ at {jax.tree_util.keystr(path)}."
            )
        return leaves[0]

    return jax.tree_util.tree_map_with_path(joined, *parts)


def blank_ensemble(experiment: Experiment, data: Trajectory) -> tuple[Any, Any]:
    """Builds filters and models with one member per seed and all-zero arrays, to load into."""
    seeds = np.zeros(experiment.num_seeds, int)
    shapes = eqx.filter_eval_shape(lambda data: _build(experiment, _first(data), seeds), data)

    def blank(leaf: Any) -> Any:
        is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
        return jax.device_put(np.zeros(leaf.shape, leaf.dtype)) if is_shape else leaf

    return jax.tree.map(blank, shapes)


def _build(experiment: Experiment, example: Trajectory, seeds: Any) -> tuple[Any, Any]:
    task = experiment.task

    def build(seed):
        filter_key, model_key = jr.split(jr.key(seed))
        model = build_model(task, experiment.model, key=model_key)
        return experiment.filter.build(task, model, example, key=filter_key), model

    return eqx.filter_vmap(build)(seeds)


# Compile one program instead of one per operation. It runs once: optimization does not pay off.
_build_once = eqx.filter_jit(  # pyright: ignore[reportCallIssue]
    _build, compiler_options={"xla_backend_optimization_level": 0}
)


@jax.jit  # one program instead of one per array
def _first(data: Trajectory) -> Trajectory:
    return jax.tree.map(lambda leaf: leaf[0], data)


def build_stages(experiments: Sequence[Experiment], index: int) -> Stage:
    """Joins stage `index` of experiments with equal `program`, with the numbers of all members."""
    stages = [build_stage(experiment, experiment.stages[index]) for experiment in experiments]
    counts = [len(experiment.members) for experiment in experiments]
    return join([stage.for_members(n) for stage, n in zip(stages, counts, strict=True)])


def build_stage(experiment: Experiment, settings: StageSettings) -> Stage:
    """Builds a stage of training with the learning rate of each member."""
    rates = settings.learning_rates
    chosen = [rates[rate if len(rates) > 1 else 0] for _, rate in experiment.members]
    return Stage(
        objective=_objective(experiment, settings),
        score=_score(experiment, settings),
        train=settings.train,
        num_epochs=settings.num_epochs,
        length=settings.length,
        batch_size=settings.batch_size,
        perturbed=float(settings.perturbed),
        learning_rate=jax.device_put(np.asarray(chosen)),
        warmup_steps=float(settings.warmup_steps),
        decay=float(settings.decay == "cosine"),
        clip_norm=settings.clip_norm,
        augment=experiment.task.augment,
    )


def _objective(experiment: Experiment, settings: StageSettings) -> Objective:
    """Adds weighted terms to the main objective of a stage: warm-up, weight decay and `terms`."""
    terms = _weights(experiment, settings)
    if settings.objective == "filter":
        warmup = StepSchedule(settings.sensor_warmup, settings.sensor_weight)
        terms[sensor_nll] = warmup
        if _learns_likelihood(experiment):
            terms.setdefault(_contrast(experiment), warmup)
    if settings.weight_decay > 0:
        terms[l2] = settings.weight_decay
    return weighted(terms)


def _weights(experiment: Experiment, settings: StageSettings) -> dict[Objective, Any]:
    """Returns the main objective and the terms with constant weights, which validation uses."""
    named = {_term(experiment, term.name): term.weight for term in settings.terms}
    terms = {_main(experiment, settings): settings.loss_weight} | named
    if settings.objective == "sensor" and _learns_likelihood(experiment):
        terms.setdefault(_contrast(experiment), 1.0)
    return terms


def _term(experiment: Experiment, name: str) -> Objective:
    terms = experiment.task.terms
    if name not in terms and name == LIKELIHOOD_TERM:
        return _contrast(experiment)
    return terms[name]


def _learns_likelihood(experiment: Experiment) -> bool:
    return experiment.model.learns_likelihood


def _main(experiment: Experiment, settings: StageSettings) -> Objective:
    if settings.objective == "filter":
        return filtering(experiment.loss(settings.loss))
    if settings.objective == "likelihood":
        return _contrast(experiment)
    return {"sensor": sensor_nll, "process": process_nll}[settings.objective]


def _contrast(experiment: Experiment) -> LikelihoodContrast:
    task = experiment.task
    if task.contrast is None:
        raise ValueError(
            f"The task {task.kind!r} must have a `contrast`, with which a likelihood can "
            "be pretrained."
        )
    near, far, spread, units = task.contrast
    return LikelihoodContrast(near, far, spread, units=units)


def _score(experiment: Experiment, settings: StageSettings) -> Score:
    if settings.objective == "filter":
        return tracking(experiment.loss(settings.loss))
    terms = _weights(experiment, settings)
    return ObjectiveScore(weighted(terms) if len(terms) > 1 else _main(experiment, settings))
