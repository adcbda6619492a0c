"""A linear system with a small sensor network, and ensembles of models to train on it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from filtrax import ExtendedKalmanFilter, Space, StateSpaceModel, Trajectory, constant_noise
from filtrax.losses import nll
from filtrax.sensors import AbstractEncoder, NetworkSensor
from filtrax.training.ensembles import Training
from filtrax.training.evaluation import tracking
from filtrax.training.objectives import filtering
from filtrax.training.stages import Stage
from systems import Linear

NUM_STEPS, LENGTH = 6, 3
PERTURBATIONS = np.asarray([[0.0, 0.0], [0.5, -0.5]])
SEEDS = (0, 1, 2)


class Encoder(AbstractEncoder):
    """Features of a reading of three numbers; `ENCODED` counts how often Python runs it."""

    matrix: jax.Array

    def __call__(self, reading, inputs, context, *, key):
        del inputs, context, key
        ENCODED.append(reading.shape)
        return jnp.tanh(self.matrix @ reading)


ENCODED: list[tuple[int, ...]] = []


def build(key):
    """A filter and a model with numbers of their own."""
    encoder_key, head_key, process_key = jr.split(key, 3)
    sensor = NetworkSensor(
        Encoder(0.5 * jr.normal(encoder_key, (4, 3))),
        Linear(jr.normal(head_key, (1, 4))),
        constant_noise(jnp.asarray([1.0]), 0.01),
    )
    process = Linear(jnp.asarray([[0.9, 0.3], [0.0, 0.8]]) + 0.1 * jr.normal(process_key, (2, 2)))
    model = StateSpaceModel(
        state_space=Space(("x", "v")),
        observation_space=Space(("z",)),
        process=process,
        process_noise=constant_noise(jnp.asarray([1.0, 1.0]), 0.01),
        observe=Linear(jnp.asarray([[1.0, 0.0]])),
        sensor=sensor,
    )
    return ExtendedKalmanFilter(), model


def ensemble(seeds=SEEDS):
    return eqx.filter_vmap(build)(jax.vmap(jr.key)(jnp.asarray(seeds)))


def trajectories(count, seed):
    rng = np.random.default_rng(seed)
    matrix = np.asarray([[0.9, 0.3], [0.0, 0.8]])
    states = [rng.normal(size=(count, 2))]
    for _ in range(NUM_STEPS):
        states.append(states[-1] @ matrix.T + 0.3 * rng.normal(size=(count, 2)))
    paths = np.stack(states, 1)
    mixing = np.asarray([[1.0, 0.2], [-0.5, 0.3], [0.1, 1.0]])
    readings = paths[:, 1:] @ mixing.T + 0.1 * rng.normal(size=(count, NUM_STEPS, 3))
    return Trajectory(
        initial=paths[:, 0],
        initial_covariance=np.tile(0.2 * np.eye(2), (count, 1, 1)),
        readings=jnp.asarray(readings),
        states=jnp.asarray(paths[:, 1:]),
    )


TRAIN, VALIDATION = trajectories(8, 0), trajectories(5, 1)


def stage(**changes):
    """Two epochs of four steps each."""
    settings = {
        "objective": filtering(nll),
        "score": tracking(nll),
        "num_epochs": 2,
        "length": LENGTH,
        "batch_size": 4,
        "learning_rate": 0.02,
        "warmup_steps": 3.0,
    }
    return Stage(**(settings | changes))


def training(chosen, both=None, seeds=SEEDS):
    both = ensemble(seeds) if both is None else both
    return Training(chosen, *both, TRAIN, VALIDATION, PERTURBATIONS, seeds)


def run(chosen, both=None, seeds=SEEDS):
    """Trains to the end: filters and models, the last ensemble, and all records."""
    trained = training(chosen, both, seeds)
    state, record = trained.begin()
    records = [record]
    while not trained.finished(state):
        state, record = trained.epoch(state)
        records.append(record)
    return trained.best(state), state, records


def member(tree, index):
    return jax.tree.map(
        lambda leaf: leaf[index] if eqx.is_array(leaf) and leaf.ndim > 0 else leaf, tree
    )


def arrays(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def assert_same(first, second, **tolerance):
    a, b = arrays(first), arrays(second)
    assert len(a) == len(b) > 0
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype
        if tolerance:
            np.testing.assert_allclose(x, y, **tolerance)
        else:
            np.testing.assert_array_equal(x, y)
