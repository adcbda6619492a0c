"""Training finds the noise that made the data, not merely a lower loss."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import filtrax
from filtrax.networks import Perceptron
from filtrax.training import filtering, measurement_nll
from oracles.kalman import LinearSystem
from systems import linear_model

TRUTH = {
    "diagonal": (np.diag([0.16, 0.81]), np.diag([0.25, 0.64])),
    "full": (np.array([[0.3, 0.15], [0.15, 0.6]]), np.array([[0.4, -0.2], [-0.2, 0.5]])),
}
OBJECTIVES = {"labels": filtering(filtrax.losses.nll), "no_labels": measurement_nll}
FILTERS = {
    "ekf": filtrax.ExtendedKalmanFilter(),
    "ukf": filtrax.UnscentedKalmanFilter(),
    "mcukf": filtrax.MonteCarloUnscentedKalmanFilter(num_samples=4),
}
OPTIMIZER = optax.adam(optax.cosine_decay_schedule(0.06, 120))
NOISE = ("model.process_noise", "model.sensor.noise")


def linear(process_noise, sensor_noise, shape):
    """An oscillator of which both components are observed."""
    dynamics = np.array([[0.9, 0.3], [-0.2, 0.8]])
    system = LinearSystem(
        dynamics, np.zeros((2, 2)), np.eye(2), process_noise, sensor_noise, np.zeros(2), np.eye(2)
    )
    model, prior = linear_model(system)
    if shape == "diagonal":
        stds = [jnp.sqrt(jnp.diagonal(jnp.asarray(c))) for c in (process_noise, sensor_noise)]
        noises = tuple(map(filtrax.constant_noise, stds))
        model = eqx.tree_at(lambda m: (m.process_noise, m.sensor.noise), model, noises)
    return model, prior


def largest_error(found, expected):
    return np.abs(np.asarray(found) - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "ekf" else pytest.mark.long) for name in FILTERS],
)
@pytest.mark.parametrize(("shape", "objective"), [("diagonal", "labels"), ("full", "no_labels")])
def test_recovers_the_true_noise_from_a_start_far_off(name, shape, objective):
    """From covariances 25 times too large to within 10 %, with three seeds.

    Rejects a loss with a wrong determinant or a gain without Q (D1), whose optimum is elsewhere,
    and noise whose off-diagonal entries do not train.
    """
    true_process, true_sensor = TRUTH[shape]
    truth, prior = linear(true_process, true_sensor, shape)
    far = [25 * np.diag(np.diag(covariance)) for covariance in (true_process, true_sensor)]
    start, _ = linear(*far, shape)
    draw = jax.jit(
        jax.vmap(lambda key: filtrax.simulate(truth, prior, inputs=jnp.zeros((25, 2)), key=key))
    )
    for seed in range(3):
        data = draw(jr.split(jr.key(seed), 500))
        if objective == "no_labels":
            data = eqx.tree_at(lambda t: t.states, data, None)
        _, model, _ = filtrax.fit(
            FILTERS[name],
            start,
            data,
            objective=OBJECTIVES[objective],
            train=NOISE,
            optimizer=OPTIMIZER,
            num_steps=120,
            batch_size=50,
            key=jr.key(seed),
        )
        assert largest_error(model.process_noise.covariance(), true_process) < 0.1
        assert largest_error(model.sensor.noise.covariance(), true_sensor) < 0.1


class PlainReading(eqx.Module):
    """Readings come with a covariate: the value is handed on, the noise sees the covariate."""

    def __call__(self, reading, inputs, context, *, key):
        del inputs, context, key
        return reading


class CovariateHead(eqx.Module):
    network: Perceptron

    def __call__(self, features):
        return self.network(features["covariate"])


def test_recovers_heteroscedastic_sensor_noise_on_a_known_covariate():
    """Rejects one constant R for all readings: its best error is far above the bound."""
    rng = np.random.default_rng(0)
    count, steps = 200, 40
    covariate = rng.uniform(size=(count, steps, 1))
    true_std = 0.2 + 1.8 * covariate
    state, states = np.zeros((count, 1)), []
    for _ in range(steps):
        state = 0.9 * state + 0.5 * rng.normal(size=state.shape)
        states.append(state)
    states = np.stack(states, 1)
    readings = {
        "value": jnp.asarray(states + true_std * rng.normal(size=states.shape)),
        "covariate": jnp.asarray(covariate),
    }
    line = filtrax.Space(("x",))
    head = CovariateHead(Perceptron((1, 16, 1), final_std=0.0, key=jr.key(0)))
    model = filtrax.StateSpaceModel(
        state_space=line,
        observation_space=line,
        process=lambda state, inputs: 0.9 * state,
        process_noise=filtrax.constant_noise([0.5]),
        observe=lambda state, inputs: state,
        sensor=filtrax.NetworkSensor(
            PlainReading(),
            lambda features: features["value"],
            filtrax.heteroscedastic_noise(head, [2.0], floor=1e-4),
        ),
    )
    data = filtrax.Trajectory(
        jnp.zeros((count, 1)), jnp.ones((count, 1, 1)), readings, states=jnp.asarray(states)
    )
    _, trained, _ = filtrax.fit(
        filtrax.ExtendedKalmanFilter(),
        model,
        data,
        loss=filtrax.losses.nll,
        train=("model.sensor.noise",),
        optimizer=optax.adam(optax.cosine_decay_schedule(5e-2, 300)),
        num_steps=300,
        batch_size=64,
        key=jr.key(0),
    )
    grid = jnp.linspace(0.05, 0.95, 10)[:, None]
    found = jax.vmap(lambda c: trained.sensor.noise({"covariate": c})[0, 0])(grid)
    error = np.abs(np.abs(found) - (0.2 + 1.8 * grid[:, 0])) / (0.2 + 1.8 * grid[:, 0])
    assert error.max() < 0.15
    assert error.mean() < 0.1
