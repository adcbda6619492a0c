"""Noise and encodings: parameters by the reference's numbers, start values and floors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.pushing import heads
from filtrax.lab.tasks.pushing.network import ImageFeatures
from filtrax.lab.tasks.pushing.space import observation_features
from filtrax.sensors import Measurement, NetworkSensor

FULL, SMALL = (98, 130), (26, 34)
UNITS = observation_features()
CONVOLUTIONS = 416 + 4640


def shapes(build):
    return eqx.filter_eval_shape(build)


def count(part):
    return sum(leaf.size for leaf in jax.tree.leaves(part) if hasattr(leaf, "size"))


def noise(dependence, start, size=SMALL, key=0):
    return heads.sensor_noise(dependence, start, size, UNITS, key=jax.random.key(key))


def features(seed=0):
    rng = np.random.default_rng(seed)
    sizes = ((26, 34), (64,), (128,), (2,), (8,))
    return ImageFeatures(*(jnp.asarray(rng.normal(size=size)) for size in sizes))


def test_heads_have_as_many_parameters_as_the_references():
    key = jax.random.key(0)
    diagonal = shapes(lambda: heads.DiagonalHead(FULL, UNITS, key=key))
    position = (22_816 * 64 + 64) + (64 * 2 + 2)
    contact = (128 * 64 + 64) + (64 * 32 + 32)
    assert count(diagonal) == CONVOLUTIONS + position + 65 + contact + 165
    full = shapes(lambda: heads.FullHead(FULL, UNITS, key=key))
    joint = (48 * 64 + 64) + (64 * 36 + 36)
    assert count(full) == CONVOLUTIONS + (22_816 * 8 + 8) + (64 * 8 + 8) + contact + joint
    likelihood = shapes(lambda: heads.likelihood_encoding(FULL, key=key))
    fully = (87_840 * 16 + 16) + (64 * 8 + 8) + (128 * 128 + 128) + (128 * 40 + 40)
    assert count(likelihood) == CONVOLUTIONS + fully
    recurrent = shapes(lambda: heads.recurrent_encoding(FULL, key=key))
    fully = (87_840 * 32 + 32) + (64 * 16 + 16) + (128 * 128 + 128) + (128 * 80 + 80)
    assert count(recurrent) == CONVOLUTIONS + fully
    network = shapes(lambda: heads.learned_likelihood(UNITS, key=key))
    assert count(network) == (72 * 128 + 128) + (128 * 128 + 128) + 129


@eqx.filter_jit
def output_of(head, seen):
    return head(seen)


@pytest.mark.parametrize("dependence", ["constant", "heteroscedastic"])
def test_noise_starts_as_it_is_told_and_differs_between_images(dependence):
    stds = jnp.asarray([3.0, 2.5, 8.8, 3.3, 1.0, 0.1, 0.1, 0.3])
    for start in (stds, jnp.diag(stds**2)):
        made = noise(dependence, start)
        first, second = (output_of(made.covariance, features(seed)) for seed in (0, 1))
        np.testing.assert_allclose(np.diagonal(first), stds**2, rtol=0.25)
        assert (first == second).all() == (dependence == "constant")
        assert np.linalg.eigvalsh(first).min() > 0


@pytest.fixture(scope="module")
def learned():
    return noise("heteroscedastic", jnp.ones(8))


def test_no_component_is_under_the_floor(learned):
    # Rejects a floor of zero, which the reference has.
    seen = features()
    output = output_of(learned.head, seen)
    at_zero = eqx.tree_at(lambda n: n.bias, learned, -output / learned.unit)
    variances = np.diagonal(output_of(at_zero.covariance, seen))
    np.testing.assert_allclose(variances, 1e-3, rtol=1e-9)
    constant = noise("constant", jnp.eye(8))
    nothing = jax.tree.map(jnp.zeros_like, constant)
    np.testing.assert_allclose(nothing.covariance(seen), 1e-3 * np.eye(8), atol=1e-12)


def test_every_component_of_the_noise_is_of_its_own_branch(learned):
    # Rejects parts that are joined in another order.
    seen, other = features(0), features(1)
    before = output_of(learned.head, seen)
    changed = {"logits": [0, 1], "rotation": [2], "contact": [3, 4, 5, 6, 7]}
    for name, components in changed.items():
        mixed = eqx.tree_at(lambda f, name=name: getattr(f, name), seen, getattr(other, name))
        assert np.flatnonzero(output_of(learned.head, mixed) != before).tolist() == components


def encoder(reading, inputs, context, *, key):
    del inputs, context, key
    return reading


def test_measurements_have_the_value_and_the_encoding_of_their_features():
    # Rejects features that go into the loop of a filter as a whole.
    key, seen, made = jax.random.key(0), features(), noise("constant", jnp.ones(8))
    for build, size in ((heads.likelihood_encoding, 64), (heads.recurrent_encoding, 128)):
        encoding = build(SMALL, key=key)
        sensor = NetworkSensor(encoder, heads.observed_value, made, encoding)
        measurement = eqx.filter_jit(sensor)(seen, None, None, key=key)
        np.testing.assert_array_equal(measurement.value, seen.value)
        assert measurement.features.shape == (size,)
        assert (measurement.features >= 0).all()
        assert (measurement.features > 0).any()
    plain = NetworkSensor(encoder, heads.observed_value, made, heads.no_encoding)
    plain = plain(seen, None, None, key=key)
    assert plain.features is None


def test_the_likelihood_is_a_log_ratio_without_limits_and_learns():
    # Rejects a sigmoid, whose values are between 0 and 1.
    likelihood = heads.learned_likelihood(UNITS, key=jax.random.key(3))
    measurement = Measurement(jnp.zeros(8), jnp.eye(8), features=jnp.full(64, 30.0))

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def score(likelihood, expected):
        return likelihood(expected, measurement, None, UNITS.space)

    results = [score(likelihood, jnp.asarray(100.0 * np.eye(8)[i])) for i in range(8)]
    values = np.asarray([value for value, _ in results])
    assert np.ptp(values) > 1.0
    for leaf in jax.tree.leaves(results[0][1]):
        assert np.isfinite(leaf).all()
