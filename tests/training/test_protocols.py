"""Declarations of objectives, augmentations and encoders, and the defaults of plain functions."""

import equinox as eqx
import jax.numpy as jnp
import pytest

import small_training as small
from filtrax import NetworkSensor, constant_noise
from filtrax._readers import Undeclared, reader, sequences_at_once
from filtrax.novelty import GuardedSensor, Novelty
from filtrax.sensors import Precomputed
from filtrax.training import (
    AbstractAugmentation,
    AbstractObjective,
    measurement_nll,
    protocols,
    weighted,
)
from filtrax.training.evaluation import ObjectiveScore
from filtrax.training.objectives import l2, process_nll
from filtrax.training.protocols import keeps_readings


class Turned(AbstractAugmentation):
    """An augmentation that leaves images as they are."""

    @property
    def keeps_readings(self):
        return True

    def __call__(self, trajectory, key):
        return trajectory


@pytest.mark.parametrize(
    ("objective", "needs_readings", "sees_given"),
    [
        (measurement_nll, True, False),
        (process_nll, False, False),
        (l2, False, True),
        (weighted({process_nll: 1.0, l2: 1.0}), False, True),
        (weighted({process_nll: 1.0, measurement_nll: 1.0}), True, False),
        (ObjectiveScore(l2), False, True),
    ],
)
def test_needs_of_a_sum_are_those_of_its_terms(objective, needs_readings, sees_given):
    # Rejects a sensor that does not run for a plain function, which may look at readings.
    found = protocols.needs_readings(objective), protocols.sees_given(objective)
    assert found == (needs_readings, sees_given)


def test_features_are_computed_once_where_readings_stay():
    assert keeps_readings(None)
    assert keeps_readings(Turned())
    assert not keeps_readings(lambda trajectory, key: trajectory)


def test_an_objective_without_a_value_is_refused():
    class Nothing(AbstractObjective):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Nothing()


class Bounded(small.Encoder):
    frames_at_once = 64


def test_the_encoder_of_a_sensor_declares_also_behind_a_guard():
    # Rejects a guard, or a sensor of measurements, that forgets what its encoder declares.
    encoder, head = Bounded(jnp.ones((4, 3))), lambda features: features[:1]
    sensor = NetworkSensor(encoder, head, constant_noise([1.0]))
    guarded = GuardedSensor(sensor, Novelty((), jnp.ones(0)))
    for outer in (sensor, Precomputed(sensor), guarded, Precomputed(guarded)):
        assert reader(outer) is encoder
        assert sequences_at_once(outer, num_steps=2, most=100) == 4  # a CPU's share of 32
    plain = NetworkSensor(lambda reading, inputs, context, *, key: reading, head, sensor.noise)
    for other in (plain, lambda reading, inputs, context, *, key: None, eqx.nn.Identity()):
        assert isinstance(reader(other), Undeclared)
        assert sequences_at_once(other, num_steps=2, most=100) == 100
