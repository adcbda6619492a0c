"""Kernels that follow the spread of the particles."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax import losses
from filtrax.beliefs import Particles
from filtrax.filters import AdaptiveKernel
from filtrax.spaces import Space

SPACE = Space(("x", "heading"), angles={"heading": 360.0})
KERNEL = AdaptiveKernel(filtrax.constant_noise([0.3, 2.0]), jnp.log(0.7))


def particles(count, seed=0):
    generator = np.random.default_rng(seed)
    # About the place where the angle jumps.
    states = generator.normal([1.0, 180.0], [2.0, 15.0], (count, 2))
    weights = generator.dirichlet(np.ones(count))
    states = jax.vmap(SPACE.wrap)(jnp.asarray(states))
    return Particles(states, jnp.log(weights), jnp.zeros((), int), jnp.eye(2))


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_the_covariance_is_that_of_the_rule(count):
    cloud = particles(count)
    weights, turned = np.exp(cloud.log_weights), np.array(cloud.states)
    turned[:, 1] %= 360.0
    covariance = np.cov(turned.T, aweights=weights, bias=True) if count > 1 else np.zeros((2, 2))
    bandwidth = 0.7 * (4 / (count * 4)) ** (1 / 6)
    expected = np.diag([0.09, 4.0]) + bandwidth**2 * covariance
    factor = KERNEL.factor(cloud, SPACE)
    np.testing.assert_allclose(factor @ factor.T, expected, rtol=1e-9)
    assert factor[0, 1] == 0


def test_gradients_are_finite_where_one_particle_has_all_the_weight():
    cloud = particles(5)
    lonely = dataclasses.replace(cloud, log_weights=jnp.asarray([0.0, *[-800.0] * 4]))

    def loss(kernel, states):
        belief = dataclasses.replace(lonely, states=states)
        belief = dataclasses.replace(belief, kernel=kernel.factor(belief, SPACE))
        return losses.mixture_nll(belief, jnp.asarray([4.0, -170.0]), SPACE)

    found = jax.grad(loss, (0, 1))(KERNEL, lonely.states)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def test_every_belief_of_a_filter_has_the_kernel_of_its_particles():
    # Rejects a kernel that stays what it was at the start.
    model = filtrax.StateSpaceModel(
        state_space=Space(("x", "v")),
        observation_space=Space(("x",)),
        process=lambda state, inputs: jnp.asarray([[1.0, 0.1], [0.0, 1.0]]) @ state,
        process_noise=filtrax.constant_noise([0.1, 0.1]),
        observe=lambda state, inputs: state[:1],
        sensor=filtrax.DirectSensor(filtrax.constant_noise([0.5])),
    )
    filt = filtrax.ParticleFilter(20, kernel=KERNEL)
    prior = filtrax.Gaussian(jnp.zeros(2), jnp.eye(2))
    start = filt.init(model, prior, key=jr.key(0))
    beliefs = filtrax.run(filt, model, prior, jnp.ones((4, 1)), key=jr.key(0)).beliefs
    steps = [jax.tree.map(lambda leaf, t=t: leaf[t], beliefs) for t in range(4)]
    for belief in (start, *steps):
        expected = KERNEL.factor(belief, model.state_space)
        np.testing.assert_allclose(belief.kernel, expected, rtol=1e-9)
    assert len({float(belief.kernel[0, 0]) for belief in steps}) == 4
