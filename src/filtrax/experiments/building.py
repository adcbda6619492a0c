"""From the settings of an experiment to the objects that train."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from filtrax.experiments.settings import Experiment, StageSettings
from filtrax.training.evaluation import ObjectiveScore, Score, tracking
from filtrax.training.objectives import (
    LikelihoodContrast,
    Objective,
    Until,
    filtering,
    l2,
    process_nll,
    sensor_nll,
    weighted,
)
from filtrax.training.stages import Stage
from filtrax.trajectory import Trajectory


def build_ensemble(experiment: Experiment, data: Trajectory) -> tuple[Any, Any]:
    """Fresh filters and models of all members; those of one seed are alike."""
    seeds = jnp.asarray([seed for seed, _ in experiment.members])
    # In one compiled program, because networks are made of many small draws.
    return eqx.filter_jit(_build)(experiment, _first(data), seeds)


def blank_ensemble(experiment: Experiment, data: Trajectory) -> tuple[Any, Any]:
    """Filters and models of one member for each seed, whose numbers are all zero, to be loaded."""
    seeds = jnp.zeros(experiment.num_seeds, int)
    shapes = eqx.filter_eval_shape(_build, experiment, _first(data), seeds)

    def blank(leaf: Any) -> Any:
        is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
        return jnp.zeros(leaf.shape, leaf.dtype) if is_shape else leaf

    return jax.tree.map(blank, shapes)


def _build(experiment: Experiment, example: Trajectory, seeds: Any) -> tuple[Any, Any]:
    def build(seed):
        filter_key, model_key = jr.split(jr.key(seed))
        model = experiment.task.build(experiment.model, key=model_key)
        return experiment.filter.build(model, example, key=filter_key), model

    return eqx.filter_vmap(build)(seeds)


def _first(data: Trajectory) -> Trajectory:
    return jax.tree.map(lambda leaf: leaf[0], data)


def build_stage(experiment: Experiment, settings: StageSettings) -> Stage:
    """A stage of training, with the learning rate of each member."""
    rates = settings.learning_rates
    chosen = [rates[rate if len(rates) > 1 else 0] for _, rate in experiment.members]
    return Stage(
        objective=_objective(experiment, settings),
        score=_score(experiment, settings),
        train=settings.train,
        num_epochs=settings.num_epochs,
        length=settings.length,
        batch_size=settings.batch_size,
        perturbed=settings.perturbed,
        learning_rate=jnp.asarray(chosen),
        warmup_steps=float(settings.warmup_steps),
        decay=float(settings.decay == "cosine"),
        clip_norm=settings.clip_norm,
    )


def _objective(experiment: Experiment, settings: StageSettings) -> Objective:
    """The stage's main objective, what is added to it, and their weights."""
    terms: dict[Objective, Any] = {_main(experiment, settings): settings.loss_weight}
    learned = experiment.model.likelihood == "learned"
    if settings.objective == "filter":
        warmup = Until(settings.sensor_warmup, settings.sensor_weight)
        terms[sensor_nll] = warmup
        if learned:
            terms[_contrast(experiment)] = warmup
    if settings.objective == "sensor" and learned:
        terms[_contrast(experiment)] = 1.0
    if settings.weight_decay > 0:
        terms[l2] = settings.weight_decay
    return weighted(terms)


def _main(experiment: Experiment, settings: StageSettings) -> Objective:
    if settings.objective == "filter":
        return filtering(experiment.loss(settings.loss))
    if settings.objective == "likelihood":
        return _contrast(experiment)
    return {"sensor": sensor_nll, "process": process_nll}[settings.objective]


def _contrast(experiment: Experiment) -> LikelihoodContrast:
    near_std, far_mean, far_std = experiment.task.contrast
    return LikelihoodContrast(near_std, far_mean, far_std)


def _score(experiment: Experiment, settings: StageSettings) -> Score:
    if settings.objective == "filter":
        return tracking(experiment.loss(settings.loss))
    return ObjectiveScore(_main(experiment, settings))
