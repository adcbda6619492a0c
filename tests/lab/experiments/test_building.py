"""From settings to filters, models and stages. Shapes are enough for most of it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny_run
from filtrax.lab.config.filters import Ekf, Lstm, Mcukf, Particle, Ukf
from filtrax.lab.config.settings import StageSettings, TermSettings
from filtrax.lab.experiments import building, evaluation
from filtrax.lab.tasks.disc import DiscModel
from filtrax.losses import mixture_nll
from filtrax.training.evaluation import ObjectiveScore
from filtrax.training.objectives import (
    LikelihoodContrast,
    StepSchedule,
    l2,
    process_nll,
    sensor_nll,
)

pytestmark = pytest.mark.xdist_group("tiny_run")

FILTERS = [
    Ekf(iterations=2),
    Ukf(kappa=2.0),
    Ukf(learned=True),
    Mcukf(num_samples=7, num_test_samples=9),
    Particle(num_particles=7, num_test_particles=9, kernel_std=3.0),
    Particle(learned_kernel=True, resample_every=2, belief="gaussian"),
    Lstm(hidden_size=5, num_layers=2),
]


def shapes(experiment):
    example = jax.tree.map(lambda leaf: leaf[0], tiny_run.TASK.data("train"))
    seeds = jnp.asarray([seed for seed, _ in experiment.members])
    return eqx.filter_eval_shape(building._build, experiment, example, seeds)


def test_many_arrays_are_one_program_or_none(caplog):
    # Rejects one for every shape, of which a GPU compiles hundreds before it trains.
    data = tiny_run.TASK.data("train")
    with jax.log_compiles():
        blank = building.blank_ensemble(tiny_run.EXPERIMENT, data)
        arrays = [leaf for leaf in jax.tree.leaves(blank) if eqx.is_array(leaf)]
        assert len({leaf.shape for leaf in arrays}) > 10
        evaluation.select(blank, np.asarray([0]))
    compiled = [text for text in caplog.messages if text.startswith("Compiling")]
    assert len(compiled) <= 5


@pytest.mark.parametrize("filt", FILTERS, ids=lambda f: f.kind)
def test_every_filter_is_an_ensemble_whose_arrays_have_an_axis_of_members(filt):
    built, model = shapes(tiny_run.changed(filter=filt))
    leaves = [leaf for leaf in jax.tree.leaves((built, model)) if hasattr(leaf, "shape")]
    assert {leaf.shape[0] for leaf in leaves} == {2}
    tested = filt.for_test(built)
    for name in ("num_particles", "num_samples"):
        if hasattr(built, name):
            wanted = getattr(filt, name.replace("num_", "num_test_"))
            assert (getattr(built, name), getattr(tested, name)) == (getattr(filt, name), wanted)


def test_a_stage_is_what_its_settings_say():
    settings = StageSettings(
        train=("model.sensor",),
        num_epochs=7,
        length=5,
        frames_per_batch=40,
        perturbed=False,
        learning_rates=(0.1, 0.2),
        warmup_steps=9,
        decay="constant",
        clip_norm=3.0,
    )
    experiment = dataclasses.replace(
        tiny_run.EXPERIMENT, task=dataclasses.replace(tiny_run.TASK, num_steps=5, num_train=8)
    )
    experiment = dataclasses.replace(experiment, stages=(settings,))
    stage = building.build_stage(experiment, settings)
    np.testing.assert_array_equal(stage.learning_rate, [0.1, 0.1, 0.2, 0.2])
    assert (stage.train, stage.num_epochs, stage.length) == (("model.sensor",), 7, 5)
    assert (stage.batch_size, stage.perturbed) == (8, False)
    assert (stage.warmup_steps, stage.decay, stage.clip_norm) == (9.0, 0.0, 3.0)


LEARNED = DiscModel(likelihood="learned")


def stage_of(**settings):
    model = settings.pop("model", DiscModel())
    filt = settings.pop("filter", Ekf())
    experiment = tiny_run.changed(model=model, filter=filt)
    return building.build_stage(experiment, dataclasses.replace(tiny_run.STAGE, **settings))


def test_objectives_and_their_weights():
    # Rejects a warm-up that never ends, and weights that go to the wrong term.
    objective = stage_of(sensor_warmup=0.3, sensor_weight=2.0, loss_weight=5.0).objective
    assert objective.terms[1] is sensor_nll
    assert objective.weights == (5.0, StepSchedule(0.3, 2.0))
    learned = stage_of(model=LEARNED, weight_decay=0.1, filter=Particle()).objective
    main, sensor, contrast, decay = learned.terms
    assert main.loss.keywords == {"density": mixture_nll, "share": 0.0}
    assert (sensor, decay) == (sensor_nll, l2)
    assert isinstance(contrast, LikelihoodContrast)
    assert (contrast.near_std, contrast.far_mean, contrast.far_std) == tiny_run.TASK.contrast[:3]
    assert learned.weights[3] == 0.1
    assert stage_of(objective="process").objective.terms == (process_nll,)
    assert stage_of(objective="sensor").objective.terms == (sensor_nll,)
    assert len(stage_of(objective="sensor", model=LEARNED).objective.terms) == 2


def test_terms_of_the_task_join_objective_and_score_with_their_weights(monkeypatch):
    # Rejects weights that go to the wrong term, and a second contrast beside the one that is named.
    own = lambda *arguments: jnp.zeros(())  # noqa: E731
    monkeypatch.setattr(type(tiny_run.TASK), "terms", {"own": own})
    terms = (TermSettings("own", 3.0), TermSettings("likelihood", 0.25))
    stage = stage_of(objective="sensor", model=LEARNED, loss_weight=0.5, terms=terms)
    main, second, contrast = stage.objective.terms
    assert (main, second) == (sensor_nll, own)
    assert isinstance(contrast, LikelihoodContrast)
    assert stage.objective.weights == (0.5, 3.0, 0.25)
    assert stage.score.objective.terms == stage.objective.terms
    # Other weights are no other program, other names are.
    settings = StageSettings(terms=terms)
    lighter = StageSettings(terms=(TermSettings("own", 1.0), TermSettings("likelihood", 0.0)))
    assert settings.program == lighter.program != StageSettings().program
    with pytest.raises(ValueError, match=r"terms of stage .* 'disc'.*Did you mean 'own'"):
        tiny_run.changed(
            stages=(dataclasses.replace(tiny_run.STAGE, terms=(TermSettings("owm"),)),)
        )
    with pytest.raises(ValueError, match="different names"):
        StageSettings(terms=(TermSettings("own"), TermSettings("own")))


def test_scores_choose_by_what_the_stage_is_for():
    score = stage_of(filter=Particle(), loss="mixed").score
    assert score.loss.keywords == {"density": mixture_nll, "share": 0.5}
    score = stage_of(objective="process").score
    assert isinstance(score, ObjectiveScore)
    assert score.objective is process_nll
    assert isinstance(stage_of(objective="likelihood", model=LEARNED).score.objective, eqx.Module)
    # A likelihood that is trained beside the sensor must not be forgotten by the choice.
    both = stage_of(objective="sensor", model=LEARNED)
    assert both.score.objective.terms == both.objective.terms
    assert len(both.score.objective.terms) == 2
    assert stage_of(objective="sensor").score.objective is sensor_nll


def test_experiments_that_are_not_one_program_are_not_joined():
    """Rejects a constant of the first experiment that all others would silently train with."""
    parts = [{"alpha": alpha, "weight": jnp.full(2, alpha)} for alpha in (1.0, 1.0)]
    assert building.join(parts)["weight"].shape == (4,)
    with pytest.raises(ValueError, match=r"one program, but 1\.0 and 0\.5 differ at \['alpha'\]"):
        building.join([*parts, {"alpha": 0.5, "weight": jnp.full(2, 0.5)}])
