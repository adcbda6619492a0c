"""Ensembles: members are what they would be alone, and nothing is compiled or computed twice."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import small_training as small
from filtrax import UnscentedKalmanFilter
from filtrax.filters import Scaling
from filtrax.losses import nll
from filtrax.training import evaluation
from filtrax.training.ensembles import Training
from filtrax.training.evaluation import ObjectiveScore
from filtrax.training.objectives import (
    LikelihoodContrast,
    StepSchedule,
    filtering,
    sensor_nll,
    weighted,
)
from filtrax.training.steps import train_steps

pytestmark = pytest.mark.xdist_group("ensembles")

TRACED: list[str] = []


def counted(filt, model, trajectory, progress, key):
    """An objective that counts how often it is traced."""
    TRACED.append("objective")
    return filtering(nll)(filt, model, trajectory, progress, key)


def objective(loss=1.0, sensor=0.5, until=0.6):
    return weighted({counted: loss, sensor_nll: StepSchedule(until, sensor)})


RATES, WEIGHTS = (0.02, 0.01, 0.03), (1.0, 2.0, 0.5)


@pytest.fixture(scope="module")
def together():
    """Three members with other learning rates and weights, trained at once."""
    stage = small.stage(
        objective=objective(loss=jnp.asarray(WEIGHTS)), learning_rate=jnp.asarray(RATES)
    )
    return small.run(stage)


@pytest.mark.parametrize("index", [1, *(pytest.param(i, marks=pytest.mark.long) for i in (0, 2))])
def test_a_member_of_an_ensemble_is_the_run_of_its_seed_alone(index, together):
    # Rejects keys, batches, rates or weights that depend on the number of members.
    seed = small.SEEDS[index]
    stage = small.stage(objective=objective(loss=WEIGHTS[index]), learning_rate=RATES[index])
    both, state, records = small.run(stage, seeds=(seed,))
    small.assert_same(
        small.member(together[0], index), small.member(both, 0), rtol=1e-9, atol=1e-11
    )
    assert int(together[1].best_epoch[index]) == int(state.best_epoch[0])
    for ours, theirs in zip(together[2], records, strict=True):
        np.testing.assert_allclose(ours.loss[index], theirs.loss[0], rtol=1e-9)
        np.testing.assert_allclose(ours.learning_rate[index], theirs.learning_rate[0])
        for name in ("loss", "distance"):
            value = theirs.validation[name][0]
            np.testing.assert_allclose(ours.validation[name][index], value, rtol=1e-9)


def test_members_of_one_seed_see_the_same_batches_and_keys(together):
    # Rejects batches, perturbations or keys of their own for members that share a seed.
    del together
    stage = small.stage(
        objective=objective(loss=jnp.asarray([1.0, 1.0, 2.0])), learning_rate=jnp.full(3, 0.02)
    )
    both, _, records = small.run(stage, seeds=(4, 4, 4))
    small.assert_same(small.member(both, 0), small.member(both, 1))
    assert records[1].loss[0] == records[1].loss[1] != records[1].loss[2]


def test_the_whole_epoch_in_one_program_equals_one_step_at_a_time(together, monkeypatch):
    # Rejects a scan that begins at another step, or another order of batches.
    monkeypatch.setattr(Training, "steps_per_call", property(lambda self: self.steps_per_epoch))
    stage = small.stage(
        objective=objective(loss=jnp.asarray(WEIGHTS)), learning_rate=jnp.asarray(RATES)
    )
    both, _, records = small.run(stage)
    small.assert_same(together[0], both, rtol=1e-9, atol=1e-11)
    for ours, theirs in zip(together[2], records, strict=True):
        np.testing.assert_allclose(ours.loss, theirs.loss, rtol=1e-9)
        np.testing.assert_allclose(ours.gradient_norm, theirs.gradient_norm, rtol=1e-9)


def test_records_say_what_happened(together):
    _, state, records = together
    assert [record.epoch for record in records] == [0, 1, 2]
    assert [record.step for record in records] == [0, 4, 8]
    assert np.isnan(records[0].loss).all()
    assert np.isfinite(records[1].loss).all()
    validation = np.stack([record.validation["loss"] for record in records])
    np.testing.assert_array_equal(state.best_loss, validation.min(0))
    np.testing.assert_array_equal(state.best_epoch, validation.argmin(0))
    assert (validation[2] < validation[0]).all()


def test_numbers_are_traced_and_the_second_epoch_is_not_compiled_again(together):
    # Rejects weak types in the first epoch, and numbers that are compiled in.
    del together
    before, programs = len(TRACED), train_steps._cached._cache_size()
    stage = small.stage(
        objective=objective(loss=0.3, sensor=0.7, until=0.2),
        learning_rate=0.001,
        warmup_steps=7.0,
        decay=0.0,
        clip_norm=3.0,
        num_epochs=3,
    )
    filt, model = small.ensemble()
    noise = jax.tree.map(lambda leaf: 3 * leaf, model.process_noise)
    model = dataclasses.replace(model, process_noise=noise)
    _, state, records = small.run(stage, (filt, model))
    assert (int(state.epoch), len(records)) == (3, 4)
    # What comes from a checkpoint has no weak types, and needs no program of its own.
    assert not [leaf for leaf in jax.tree.leaves(state) if leaf.weak_type]
    training = small.training(stage, (filt, model))
    begun, _ = training.begin()
    assert not [leaf for leaf in jax.tree.leaves(begun) if leaf.weak_type]
    assert len(TRACED) == before
    assert train_steps._cached._cache_size() == programs


@pytest.fixture
def sequential_members(monkeypatch):
    """As on a GPU, with an encoder that asks for it."""
    monkeypatch.setattr(small.Encoder, "sequential_members", True, raising=False)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(Training, "steps_per_call", property(lambda self: 1))
    train_steps._cached.clear_cache()
    yield
    train_steps._cached.clear_cache()


@pytest.mark.long
def test_members_in_turn_are_what_they_are_at_once(together, sequential_members):
    # Rejects members that get the numbers of others, or all the same keys.
    stage = small.stage(
        objective=objective(loss=jnp.asarray(WEIGHTS)), learning_rate=jnp.asarray(RATES)
    )
    both, _, records = small.run(stage)
    small.assert_same(together[0], both, rtol=1e-9, atol=1e-11)
    for ours, theirs in zip(together[2], records, strict=True):
        for name in ours.validation:
            np.testing.assert_allclose(ours.validation[name], theirs.validation[name], rtol=1e-9)


class Bent(eqx.Module):
    """A process on which the scaling has an influence."""

    linear: eqx.Module

    def __call__(self, state, inputs):
        return jnp.sin(self.linear(state, inputs))


def test_the_scaling_of_sigma_points_is_traced():
    def begin(kappa):
        scaling = Scaling(*(jnp.full(1, value) for value in (1.0, kappa, 0.0)))
        _, model = small.ensemble((0,))
        model = dataclasses.replace(model, process=Bent(model.process))
        filt = UnscentedKalmanFilter(scaling=scaling)
        training = small.training(small.stage(), (filt, model), seeds=(0,))
        return training.begin()[1].validation["loss"]

    first, before = begin(0.5), evaluation._evaluate._cached._cache_size()
    assert begin(1.5) != first
    assert evaluation._evaluate._cached._cache_size() == before


class Square(eqx.Module):
    """(process matrix)² summed, not a number from a progress on: one entry per member."""

    ends: float | jax.Array

    def __call__(self, filt, model, trajectory, progress, key):
        del filt, key
        total = (model.process.state**2).sum() + 0 * trajectory.initial.sum()
        return jnp.where(progress >= self.ends, jnp.nan, total)


def squares(ends, rates=0.01, num_epochs=4):
    never = ObjectiveScore(Square(9.0))
    return small.stage(
        objective=Square(jnp.asarray(ends)),
        score=never,
        train=("model.process",),
        learning_rate=jnp.broadcast_to(jnp.asarray(rates), (3,)),
        num_epochs=num_epochs,
    )


def test_a_member_that_turns_nan_goes_back_to_its_best_and_the_others_do_not_notice():
    # Rejects a rollback of all members, and NaN that gets into parameters.
    whole = small.run(squares([9.0, 9.0, 9.0]))
    training = small.training(squares([9.0, 0.5, 9.0]))
    state, _ = training.begin()
    bests = []
    while not training.finished(state):
        state, record = training.epoch(state)
        assert all(np.isfinite(leaf).all() for leaf in small.arrays(state.learner))
        bests.append(state)
    small.assert_same(small.member(bests[1].best, 1), small.member(bests[2].learner, 1))
    np.testing.assert_array_equal(state.rollbacks, [0, 2, 0])
    np.testing.assert_array_equal(state.rate, [1.0, 0.25, 1.0])
    np.testing.assert_array_equal(record.rollbacks, [0, 2, 0])
    np.testing.assert_array_equal(state.best_epoch, [4, 2, 4])
    np.testing.assert_allclose(record.learning_rate, [0.01, 0.0025, 0.01])
    assert np.isnan(record.loss[1])
    for index in (0, 2):
        small.assert_same(small.member(whole[1], index), small.member(state, index))


def test_a_member_whose_validation_jumps_goes_back_to_its_best():
    training = small.training(squares([9.0] * 3, rates=[0.01, 30.0, 0.01], num_epochs=2))
    start, _ = training.begin()
    state, record = training.epoch(start)
    np.testing.assert_array_equal(state.rollbacks, [0, 1, 0])
    np.testing.assert_array_equal(state.rate, [1.0, 0.5, 1.0])
    assert record.validation["loss"][1] > 50
    # The memory of the optimizer goes back, too.
    small.assert_same(small.member(state.learner, 1), small.member(start.learner, 1))
    assert (np.asarray(state.learner.memory.count) == [4, 0, 4]).all()
    small.assert_same(state.best_loss[1], start.best_loss[1])


def test_numbers_of_a_score_are_no_numbers_of_members():
    # Rejects the numbers of an objective, one per member, in a score that is not mapped.
    contrast = LikelihoodContrast(1.0, 3.0, 0.5)
    stage = small.stage(objective=contrast, score=ObjectiveScore(contrast), train=("model",))
    training = small.training(stage)
    jax.eval_shape(lambda: training._validate(training.template().learner))


def test_the_rate_warms_up_and_falls_with_the_cosine():
    stage = small.stage(learning_rate=2.0, warmup_steps=4.0)
    rates = [stage.rate(jnp.asarray(i), jnp.asarray(i / 8)) for i in range(8)]
    warm = np.minimum(np.arange(1, 9) / 4, 1)
    np.testing.assert_allclose(rates, 2 * warm * (1 + np.cos(np.pi * np.arange(8) / 8)) / 2)
    constant = dataclasses.replace(stage, decay=0.0).rate(jnp.asarray(9), jnp.asarray(0.9))
    np.testing.assert_allclose(constant, 2.0)


def test_an_optimizer_with_a_rate_of_its_own_is_used_as_it_is():
    # Rejects a step up the gradient, and one that is scaled twice.
    plain = {"clip_norm": None, "warmup_steps": 1.0, "decay": 0.0}
    stages = [
        small.stage(**plain),
        small.stage(optimizer=optax.adam(0.02), learning_rate=None, clip_norm=None),
    ]
    ours, theirs = (small.run(stage, seeds=(0,)) for stage in stages)
    small.assert_same(ours[0], theirs[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(theirs[2][-1].learning_rate, [1.0])


def test_every_sequence_is_drawn_equally_often():
    # Rejects an epoch that leaves sequences out, or draws them from the start alone.
    starts = []

    def look(filt, model, trajectory, progress, key):
        del filt, progress, key
        jax.debug.callback(lambda r: starts.append(np.asarray(r)), trajectory.states[0, 0])
        return (model.process.state**2).sum()

    stage = small.stage(
        objective=look, score=ObjectiveScore(Square(9.0)), train=("model.process",), perturbed=False
    )
    training = small.training(stage, seeds=(0,), both=small.ensemble((0,)))
    training.epoch(training.template())
    jax.effects_barrier()
    drawn = np.concatenate([np.ravel(start) for start in starts])
    states = np.asarray(small.TRAIN.states)[..., 0]
    sequences, steps = zip(*(np.argwhere(states == value)[0] for value in drawn), strict=True)
    np.testing.assert_array_equal(np.bincount(sequences), np.full(8, 2))
    assert max(steps) <= small.NUM_STEPS - small.LENGTH
    assert len(set(steps)) > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 7}, r"`length` must be between 1 and the 6 steps .* got 7"),
        ({"length": 0}, r"`length` must be between 1"),
        ({"num_epochs": 0}, r"`num_epochs` must be at least 1, got 0"),
        ({"batch_size": 17}, r"`batch_size` must be between 1 and the 16 sub-sequences .* 17"),
        ({"train": ("model.sensr",)}, "sensor"),
        ({"train": ()}, "at least one part"),
    ],
)
def test_stages_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small.training(small.stage(**changes))


def test_members_on_two_data_sets_train_as_two_ensembles_do():
    # Rejects members that see the other data set, in training, validation or cached features.
    other = dataclasses.replace(
        small.TRAIN, readings=small.TRAIN.readings + 0.3, states=small.TRAIN.states - 0.2
    )
    sets = [small.TRAIN, other]
    validations = [
        small.VALIDATION,
        dataclasses.replace(small.VALIDATION, states=-small.VALIDATION.states),
    ]
    for stage in (small.stage(), small.stage(train=("model.process",))):
        filt, model = small.ensemble((0, 1))
        twice = jax.tree.map(_twice, (filt, model))
        together = Training(stage, *twice, sets, validations, small.PERTURBATIONS, [0, 1, 0, 1])
        ensemble, _ = together.begin()
        ensemble, _ = together.epoch(ensemble)
        for i, (data, validation) in enumerate(zip(sets, validations, strict=True)):
            alone = Training(stage, filt, model, data, validation, small.PERTURBATIONS, [0, 1])
            expected, _ = alone.epoch(alone.begin()[0])
            found = jax.tree.map(lambda leaf, i=i: leaf[2 * i : 2 * i + 2], ensemble.best_loss)
            np.testing.assert_allclose(found, expected.best_loss, rtol=1e-9)
            mine = jax.tree.leaves(together.best(ensemble))
            theirs = jax.tree.leaves(alone.best(expected))
            for a, b in zip(mine, theirs, strict=True):
                if eqx.is_inexact_array(a):
                    np.testing.assert_allclose(a[2 * i : 2 * i + 2], b, rtol=1e-7, atol=1e-9)


def _twice(leaf):
    return jnp.concatenate([leaf, leaf]) if eqx.is_array(leaf) else leaf


@pytest.mark.parametrize("count", [1, 3])
def test_data_sets_must_fit_the_members(count):
    sets = [small.TRAIN] * count
    with pytest.raises(ValueError, match="data sets"):
        Training(
            small.stage(),
            *small.ensemble((0, 1)),
            sets,
            [small.VALIDATION] * 2,
            small.PERTURBATIONS,
            [0, 1],
        )
