"""What a stage needs of its readings: features once, images again and again, or nothing."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import small_training as small
from filtrax import DirectSensor, constant_noise
from filtrax.sensors import PrecomputedFeatures
from filtrax.training import trainer
from filtrax.training.data_sets import first_set
from filtrax.training.ensembles import Training
from filtrax.training.evaluation import ObjectiveScore
from filtrax.training.objectives import ProcessNll, l2, process_nll, weighted

pytestmark = pytest.mark.xdist_group("ensembles")


def parts(both):
    _, model = both
    return {
        "encoder": model.sensor.encoder,
        "head": model.sensor.head,
        "sensor noise": without_unit(model.sensor.noise),
        "process": model.process,
        "process noise": without_unit(model.process_noise),
        "observe": model.observe,
    }


def without_unit(noise):
    return eqx.tree_at(lambda noise: noise.unit, noise, None)


def pairs(first, second):
    return zip(small.arrays(first), small.arrays(second), strict=True)


NOISE = ("model.sensor.noise", "model.process_noise")


@pytest.fixture(scope="module")
def cached():
    """Noise is trained, so that the encoder runs once, before the first epoch."""
    training = small.training(small.stage(train=NOISE))
    del small.ENCODED[:]
    state, _ = training.begin()
    while not training.finished(state):
        state, _ = training.epoch(state)
    assert not small.ENCODED
    return training, training.best(state)


def test_named_parts_change_and_all_others_stay_bit_for_bit(cached):
    start = parts(small.ensemble())
    for name, part in parts(cached[1]).items():
        if name in ("sensor noise", "process noise"):
            assert all((a != b).all() for a, b in pairs(part, start[name]))
        else:
            small.assert_same(part, start[name])
    for name, part in parts(small.run(small.stage())[0]).items():
        changed = [(a != b).any() for a, b in pairs(part, start[name])]
        assert all(changed), name


def test_cached_features_give_what_features_that_are_computed_again_give(cached, monkeypatch):
    training, both = cached
    assert training.readings.shape == (3, 8, small.NUM_STEPS, 4)
    matrix = training.encoder.matrix
    features = np.tanh(np.einsum("mfr,ntr->mntf", matrix, small.TRAIN.readings))
    np.testing.assert_allclose(training.readings, features, rtol=1e-12)
    # Rejects readings, which may be images, that stay in memory beside their features.
    for data in (first_set(training.course.data), *training.validation):
        assert data.readings.shape == data.states.shape[:2]
    monkeypatch.setattr(trainer, "has_frozen_encoder", lambda *_: False)
    again, _, _ = small.run(small.stage(train=NOISE))
    small.assert_same(both, again, rtol=1e-9, atol=1e-11)


def test_an_encoder_that_trains_or_masked_readings_are_not_cached():
    # Rejects features of zeros in the place of features of masked readings.
    assert small.training(small.stage()).readings is None
    stage = small.stage(train=NOISE)
    masked = dataclasses.replace(
        small.VALIDATION, observed=jnp.ones(small.VALIDATION.readings.shape[:2], bool)
    )
    both = small.ensemble()
    for data, validation in (
        (masked, small.VALIDATION),
        (small.TRAIN, masked),
    ):
        training = Training(stage, *both, data, validation, small.PERTURBATIONS, small.SEEDS)
        assert training.readings is None
        assert training.validation_readings is None
    filt, model = both
    direct = eqx.filter_vmap(lambda std: DirectSensor(constant_noise(std)))(jnp.ones((3, 1)))
    readings = small.TRAIN.readings[..., :1]
    data = dataclasses.replace(small.TRAIN, readings=readings)
    model = dataclasses.replace(model, sensor=direct)
    stage = small.stage(train=("model.process_noise",))
    training = Training(stage, filt, model, data, data, small.PERTURBATIONS, small.SEEDS)
    assert training.readings is None


class Careful(ProcessNll):
    """The same numbers, but it does not say that it needs no readings."""

    needs_readings: ClassVar[bool] = True


@pytest.mark.parametrize("train", [("model.process",), ("model",)])
def test_no_sensor_runs_where_nothing_needs_readings(train):
    # Rejects images that are drawn, or kept, to train a process on states alone.
    stages = [
        small.stage(
            objective=weighted({process: 1.0, l2: 0.1}), score=ObjectiveScore(process), train=train
        )
        for process in (process_nll, Careful())
    ]
    del small.ENCODED[:]
    found, _, _ = small.run(stages[0])
    training = small.training(stages[0])
    assert not small.ENCODED
    assert training.readings is None
    assert training.course.data.readings.dtype == bool
    careful = small.training(stages[1])
    assert (careful.readings is not None) == (train == ("model.process",))
    again, _, _ = small.run(stages[1])
    small.assert_same(found, again, rtol=1e-9, atol=1e-11)


def test_the_best_model_has_its_encoder_again(cached):
    assert not isinstance(cached[1][1].sensor.encoder, PrecomputedFeatures)
