"""Settings: what cannot be is refused before anything begins."""

import dataclasses

import pytest

import filtrax
from filtrax.lab.config import as_dict, build, parse
from filtrax.lab.config.filters import Ekf, Lstm, Mcukf, Particle, Ukf
from filtrax.lab.config.parsing import ConfigurationError
from filtrax.lab.config.settings import Experiment, StageSettings
from filtrax.lab.tasks.disc import DiscModel, DiscTask
from filtrax.lab.tasks.kitti import Fold, Frames, KittiModel, KittiTask


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: StageSettings(num_epochs=0), "num_epochs must be at least 1, got 0"),
        (lambda: StageSettings(learning_rates=()), "one or more positive numbers"),
        (lambda: StageSettings(learning_rates=(0.1, -1.0)), "one or more positive numbers"),
        (lambda: StageSettings(length=0), "length must be at least 1"),
        (lambda: StageSettings(length=10, frames_per_batch=9), "at most frames_per_batch"),
        (lambda: StageSettings(clip_norm=0.0), "clip_norm must be positive"),
        (lambda: StageSettings(warmup_steps=0), "warmup_steps at least 1"),
        (lambda: Ekf(iterations=0), "iterations must be positive, got 0"),
        (lambda: Mcukf(num_test_samples=0), "num_test_samples must be positive"),
        (lambda: Particle(num_test_particles=0), "num_test_particles must be positive"),
        (lambda: Particle(kernel_std=0.0), r"kernel_std must be positive, got 0\.0"),
        (lambda: Particle(resample_every=0), "resample_every must be positive"),
        (lambda: Particle(soft_resampling=1.5), "between 0 and 1, got 1.5"),
        (lambda: Lstm(hidden_size=0), "hidden_size must be positive"),
        (lambda: Experiment(seed=-1), "seed must not be negative"),
        (lambda: Experiment(seed=2**31), r"below 2\*\*31"),
        (lambda: Experiment(num_seeds=0), "num_seeds must be at least 1"),
        (
            lambda: Experiment(stages=(StageSettings(length=51),)),
            "length of stage 'end to end' must be at most the 50 steps .* got 51",
        ),
        (
            lambda: Experiment(task=DiscTask(num_train=5)),
            r"frames_per_batch .* at most 10 \(length\) times the 25 sub-sequences .* got 320",
        ),
        (
            lambda: Experiment(
                stages=(
                    StageSettings(learning_rates=(1.0, 2.0)),
                    StageSettings(learning_rates=(1.0, 2.0, 3.0)),
                )
            ),
            r"equally many learning_rates, or one: got \[2, 3\]",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_refusal_in_a_file_names_its_place():
    with pytest.raises(ConfigurationError, match=r"`filter`: kernel_std must be positive"):
        parse(Experiment, {"filter": {"kind": "particle", "kernel_std": 0}})


def test_members_are_all_seeds_with_the_first_rate_then_with_the_next():
    search = StageSettings(learning_rates=(0.1, 0.2))
    experiment = Experiment(seed=3, num_seeds=2, stages=(StageSettings(), search))
    assert experiment.members == [(3, 0), (4, 0), (3, 1), (4, 1)]
    assert Experiment().members == [(0, 0)]


def test_a_batch_has_as_many_sequences_as_frames_allow():
    assert StageSettings(length=10, frames_per_batch=320).batch_size == 32
    assert StageSettings(length=7, frames_per_batch=320).batch_size == 45


@pytest.mark.parametrize(
    ("filt", "density"),
    [
        (Ekf(), filtrax.losses.nll),
        (Ukf(), filtrax.losses.nll),
        (Particle(), filtrax.losses.mixture_nll),
        (Particle(belief="gaussian"), filtrax.losses.kernel_nll),
    ],
)
def test_the_loss_is_the_one_of_the_filters_belief(filt, density):
    # Rejects losses that differ in more than a number: their programs would be compiled again.
    experiment = Experiment(filter=filt)
    for name, share in (("nll", 0.0), ("mixed", 0.5), ("mse", 1.0)):
        loss = experiment.loss(name)
        assert loss.func is filtrax.losses.mixed
        assert loss.keywords == {"density": density, "share": share}


def test_experiments_that_differ_in_numbers_alone_are_one_program():
    # Rejects numbers that count as structure, and structure that counts as a number.
    first = Experiment(filter=Ukf(), stages=(StageSettings(),))
    stage = StageSettings(loss="mse", perturbed=False, learning_rates=(1e-4,), clip_norm=9.0)
    second = Experiment(
        name="other",
        seed=4,
        task=DiscTask(noise="heteroscedastic", position_std=0.1, seed=3),
        model=DiscModel(process_std=2.0, sensor_std=5.0),
        filter=Ukf(kappa=-3.0, alpha=0.5, beta=2.0),
        stages=(stage,),
    )
    assert first.program == second.program
    for other in (
        dataclasses.replace(first, task=DiscTask(num_distractors=5)),
        dataclasses.replace(first, model=DiscModel(sensor_floor=0.5)),
        dataclasses.replace(first, filter=Ukf(redraw=False)),
        dataclasses.replace(first, filter=Ekf()),
        dataclasses.replace(first, num_seeds=2),
        dataclasses.replace(first, stages=(StageSettings(length=5),)),
        dataclasses.replace(first, stages=(StageSettings(weight_decay=1e-3),)),
        dataclasses.replace(first, stages=(StageSettings(learning_rates=(1e-3, 1e-4)),)),
    ):
        assert other.program != first.program
    kernels = Particle(kernel_std=5.0, soft_resampling=0.25, resample_every=10)
    assert kernels.program == Particle(resample_every=2).program
    assert kernels.program != Particle().program


def test_a_task_brings_the_settings_of_its_model_and_a_name():
    assert Experiment() == Experiment(name="disc", task=DiscTask(), model=DiscModel())
    assert Experiment(task=KittiTask()) == Experiment("kitti", task=KittiTask(), model=KittiModel())
    with pytest.raises(ValueError, match="task 'kitti', a KittiModel, got a DiscModel"):
        Experiment(task=KittiTask(), model=DiscModel())
    # What was written before there were other tasks says nothing of a kind.
    old = parse(Experiment, {"task": {"num_distractors": 3}, "model": {"sensor_std": 7.0}})
    assert (old.task, old.model) == (DiscTask(num_distractors=3), DiscModel(sensor_std=7.0))
    assert "kind" not in as_dict(old)["model"]


def test_choosing_a_task_on_the_command_line_chooses_its_model():
    # Rejects settings of the disc model that stay behind, in a file or by default.
    file = {"name": "mine", "task": {"num_distractors": 3}, "model": {"sensor": "keypoints"}}
    overrides = ["model.process=analytical", "task.split.kind=frames", "task.kind=kitti"]
    for mapping in ({}, file):
        chosen = build(Experiment, mapping, [*overrides, "task.split.test.1=3400"])
        split = Frames(test=(3000, 3400))
        assert chosen == Experiment(
            task=KittiTask(split=split), model=KittiModel(process="analytical")
        )
        assert parse(Experiment, as_dict(chosen)) == chosen
    kitti = {"task": {"kind": "kitti", "split": {"test": "07"}}, "model": {"dropout": 0.1}}
    same = build(Experiment, kitti, ["task.kind=kitti", "name=seven"])
    assert same == Experiment(
        "seven", task=KittiTask(split=Fold("07")), model=KittiModel(dropout=0.1)
    )
    assert build(Experiment, kitti, ["task.kind=disc"]) == Experiment()


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"task": {"kind": "kiti"}}, "`task.kind` must be one of .* Did you mean 'kitti'"),
        (
            {"task": {"kind": "kitti"}, "model": {"process_std": 1.0}},
            "There is no setting `model.process_std`.* Did you mean 'process_stds'",
        ),
        ({"model": {"kind": "kitti"}}, "There is no setting `model.kind`"),
        ({"dropout": 0.1}, "There is no setting `dropout`. Did you mean `model.dropout`"),
    ],
)
def test_settings_of_another_task_are_named(mapping, message):
    with pytest.raises(ConfigurationError, match=message):
        parse(Experiment, mapping)
