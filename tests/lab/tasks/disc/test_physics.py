"""The law of motion and its true noise against the formulas of the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filtrax.lab.tasks.disc.physics import covariances, process, true_noise


def moved(states):
    """The equations in NumPy, for many states."""
    p, v = np.split(np.asarray(states, float), 2, axis=-1)
    return np.concatenate([p + v, v - 0.05 * p - 0.0075 * v**2 * np.sign(v)], -1)


def test_the_process_follows_the_equations():
    # Rejects a drag that speeds up what moves backwards, and a spring that pulls to the new place.
    states = np.random.default_rng(0).normal(0, 30, (20, 4))
    drawn = jax.vmap(lambda state: process(state, None))(jnp.asarray(states))
    np.testing.assert_allclose(drawn, moved(states), rtol=1e-12)


def test_the_jacobian_is_that_of_the_paper():
    # Rejects a drag whose derivative has the wrong sign for negative velocities or at zero.
    for vx, vy in ((8.0, -3.0), (0.0, -20.0)):
        jacobian = jax.jacfwd(process)(jnp.asarray([20.0, -50.0, vx, vy]))
        expected = np.eye(4) + np.eye(4, k=2) - 0.05 * np.eye(4, k=-2)
        expected[2, 2], expected[3, 3] = 1 - 0.015 * abs(vx), 1 - 0.015 * abs(vy)
        np.testing.assert_allclose(jacobian, expected, rtol=1e-12)


ZONES = [
    ((0.0, 0.0), 3.0),
    ((20.0, -20.0), 3.0),
    ((20.1, 0.0), 1.0),
    ((3.0, -20.1), 1.0),
    ((-40.0, 40.0), 1.0),
    ((-40.1, 0.0), 0.1),
    ((25.0, 40.1), 0.1),
]


def test_zones_of_heteroscedastic_noise():
    # Rejects the distance to the centre for the larger coordinate, and zones off by their border.
    places, velocity_stds = zip(*ZONES, strict=True)
    states = np.concatenate([places, np.full((len(places), 2), 90.0)], 1)
    found = covariances(true_noise("heteroscedastic", 9.0, 2.0), jnp.asarray(states)[None])[0]
    stds = [(9.0, 9.0, std, std) for std in velocity_stds]
    np.testing.assert_allclose(found, [np.diag(np.square(std)) for std in stds], rtol=1e-12)


CORRELATED = [[9, -3.6, 1.2, 5.4], [-3.6, 9, -0.6, 0], [1.2, -0.6, 4, 0], [5.4, 0, 0, 4]]


@pytest.mark.parametrize("kind", ["constant", "heteroscedastic", "correlated"])
def test_the_factor_is_one_of_the_covariance(kind):
    # Rejects a factor of another matrix, and standard deviations in the place of variances.
    noise, state = true_noise(kind, 3.0, 2.0), jnp.asarray([25.0, 0.0, 1.0, 1.0])
    expected = {
        "constant": np.diag([9.0, 9.0, 4.0, 4.0]),
        "heteroscedastic": np.diag([9.0, 9.0, 1.0, 1.0]),
        "correlated": CORRELATED,
    }[kind]
    np.testing.assert_allclose(noise.covariance(state, None), expected, atol=1e-12)
    factor = noise(state, None)
    np.testing.assert_allclose(factor @ factor.T, expected, atol=1e-12)
