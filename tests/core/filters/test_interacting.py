"""The interacting filter against exact answers and the textbook, on switching linear systems."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from scipy.stats import multivariate_normal

import filtrax
from filtrax import IMMFilter, Mode, SwitchingProcess, Transitions
from filtrax.filters import filter_trajectory
from oracles.kalman import kalman, random_system
from oracles.switching import (
    SwitchingSystem,
    gaussian_sum,
    interacting,
    moments,
    simulate,
)
from systems import (
    MANOEUVRES,
    POSE,
    beacon_model,
    beacon_trajectory,
    switching_beacon_model,
    switching_model,
)

STEPS = 20
SIZES = (3, 2)
SPACE = filtrax.Space(("a", "b", "c"))
MATRIX = np.array([[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.25, 0.05, 0.7]])
INNER = {
    "ekf": filtrax.ExtendedKalmanFilter(),
    "ukf": filtrax.UnscentedKalmanFilter(),
    "mcukf": filtrax.MonteCarloUnscentedKalmanFilter(num_samples=8),
}


def random_switching(matrix=MATRIX, initial=(0.5, 0.3, 0.2), seed=0):
    """Modes that differ in everything that may differ."""
    rng = np.random.default_rng(seed)
    modes = [random_system(rng, *SIZES) for _ in matrix]
    shared = {"mean": modes[0].mean, "covariance": modes[0].covariance}
    modes = tuple(dataclasses.replace(mode, **shared) for mode in modes)
    return SwitchingSystem(modes, np.asarray(matrix), np.asarray(initial))


def masks(rng, steps, shape=SIZES[1:]):
    seen = rng.random((steps, *shape)) < 0.7
    seen[steps // 2] = False
    return seen


@eqx.filter_jit
def run(filt, model, prior, inputs, readings, seen):
    known = {"inputs": inputs, "observed": seen}
    trajectory = filtrax.Trajectory(prior.mean, prior.covariance, readings, **known)
    result = filter_trajectory(filt, model, trajectory, key=jr.key(1), info=True)
    return result.beliefs, result.info


def data(system, steps=STEPS, seed=1):
    rng = np.random.default_rng(seed)
    controls, _, _, observations = simulate(system, rng, steps)
    return controls, observations, masks(rng, steps)


def run_on(filt, model, prior, controls, observations, seen):
    readings = np.where(seen, observations, np.nan)
    return run(filt, model, prior, *map(jnp.asarray, (controls, readings, seen)))


def assert_close(found, expected, tolerance=1e-9):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "inner", ["ekf", *(pytest.param(name, marks=pytest.mark.long) for name in ("ukf", "mcukf"))]
)
def test_equals_the_textbook_over_twenty_steps_with_masks(inner):
    """Rejects transposed transitions, mixing by the wrong weights, a spread that is left out."""
    system = random_switching()
    inputs = data(system)
    weights, means, covariances, log_likelihoods = interacting(system, *inputs)
    assert 0.02 < weights.max(1).min() < 0.9  # modes are in doubt, so that mixing matters
    beliefs, info = run_on(IMMFilter(INNER[inner]), *switching_model(system), *inputs)
    assert_close(jnp.exp(beliefs.log_weights), weights)
    assert_close(beliefs.components.mean, means)
    assert_close(beliefs.components.covariance, covariances)
    assert_close(info.log_likelihood, log_likelihoods)
    assert info.finite.all()
    whole = jax.vmap(lambda belief: belief.moments(SPACE))(beliefs)
    expected = [moments(*each) for each in zip(weights, means, covariances, strict=True)]
    assert_close(whole.mean, [mean for mean, _ in expected])
    assert_close(whole.covariance, [covariance for _, covariance in expected])


def test_modes_of_different_programs_equal_modes_of_one():
    """The same numbers through one mapped program and through one program for each mode."""
    system = random_switching()
    model, prior = switching_model(system)
    processes = [mode.process for mode in model.process.modes]
    others = [lambda x, u, f=f: f.state @ x + f.inputs @ u for f in processes]
    modes = [
        dataclasses.replace(mode, process=process)
        for mode, process in zip(model.process.modes, others, strict=True)
    ]
    apart = eqx.tree_at(lambda m: m.process.modes, model, tuple(modes))
    inputs = data(system)
    # The paper's form, whose prediction is more than a Gaussian.
    filt = IMMFilter(filtrax.UnscentedKalmanFilter(redraw=False))
    found, expected = (run_on(filt, which, prior, *inputs) for which in (apart, model))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_close(a, b, 1e-10)


@pytest.mark.parametrize(("inner", "modes"), [("ekf", None), ("mcukf", 3)])
def test_one_mode_and_equal_modes_are_the_inner_filter(inner, modes):
    """On a system with angles. Rejects a filter that changes what nothing switches."""
    trajectory, model = beacon_trajectory(6), beacon_model()
    inputs = (trajectory.prior, trajectory.inputs, trajectory.readings, None)
    expected, known = run(INNER[inner], model, *inputs)
    if modes is not None:
        chances = Transitions(np.full((modes, modes), 1 / modes))
        process = SwitchingProcess(model.process, (Mode(),) * modes, chances)
        model = dataclasses.replace(model, process=process)
    beliefs, info = run(IMMFilter(INNER[inner]), model, *inputs)
    found = jax.vmap(lambda belief: belief.moments(POSE))(beliefs)
    assert_close(jnp.exp(beliefs.log_weights), 1 / (modes or 1))
    for name in ("mean", "covariance"):
        assert_close(getattr(found, name), getattr(expected, name), 1e-11)
    for name in ("log_likelihood", "innovation", "innovation_covariance"):
        assert_close(getattr(info, name), getattr(known, name), 1e-11)


def test_without_switches_weights_are_the_evidence_of_separate_kalman_filters():
    """Exact for all times: softmax of ln P(mode) + ln p(z₁ ... z_t | mode)."""
    initial = (0.5, 0.5, 0.0)  # the last mode is impossible, and stays so
    system = random_switching(np.eye(3), initial)
    inputs = data(system)
    answers = [kalman(mode, *inputs) for mode in system.modes]
    evidence = np.cumsum([answer[2] for answer in answers], axis=1).T
    with np.errstate(divide="ignore"):
        joint = np.log(initial) + evidence
    beliefs, info = run_on(IMMFilter(), *switching_model(system), *inputs)
    assert_close(beliefs.log_weights, log_softmax(joint, axis=1))
    assert_close(jnp.cumsum(info.log_likelihood), logsumexp(joint, axis=1))
    assert info.finite.all()
    for mode, (means, covariances, _) in enumerate(answers):
        assert_close(beliefs.components.mean[:, mode], means)
        assert_close(beliefs.components.covariance[:, mode], covariances)


EQUAL_ROWS = np.tile([0.2, 0.5, 0.3], (3, 1))


@pytest.mark.parametrize("matrix", [MATRIX, EQUAL_ROWS], ids=["markov", "equal_rows"])
def test_equals_the_exact_gaussian_sum_where_the_filter_is_exact(matrix):
    """After the first step everything is; moments stay so until the next observation.

    Rejects transitions that act after the update, and an initial distribution that is ignored.
    """
    system = random_switching(matrix)
    controls, observations, _ = data(system, 4)
    seen = np.zeros((4, 2), bool)
    seen[0] = True
    beliefs, info = run_on(IMMFilter(), *switching_model(system), controls, observations, seen)
    state = jnp.asarray([0.3, -0.2, 0.5])
    for last in (1, 2, 4):
        inputs = (controls[:last], observations[:last], seen[:last])
        weights, means, covariances, modes, evidence = gaussian_sum(system, *inputs)
        belief = jax.tree.map(lambda leaf, t=last - 1: leaf[t], beliefs)
        assert_close(info.log_likelihood[:last].sum(), evidence)
        assert_close(jnp.exp(belief.log_weights), [weights[modes == j].sum() for j in range(3)])
        found, expected = belief.moments(SPACE), moments(weights, means, covariances)
        assert_close(found.mean, expected[0])
        assert_close(found.covariance, expected[1])
        if last == 1:
            parts = zip(means, covariances, strict=True)
            density = [multivariate_normal.pdf(state, *part) for part in parts] @ weights
            assert_close(belief.log_density(state, SPACE), np.log(density))


def test_is_close_to_the_gaussian_sum_where_it_is_not_exact():
    """Weights before the second update are exact; what follows is within the approximation."""
    system = random_switching()
    controls, observations, _ = data(system, 2)
    seen = np.ones((2, 2), bool)
    beliefs, info = run_on(IMMFilter(), *switching_model(system), controls, observations, seen)
    weights, *_, modes, evidence = gaussian_sum(system, controls, observations, seen)
    exact = np.asarray([weights[modes == j].sum() for j in range(3)])
    error = np.abs(np.exp(beliefs.log_weights[1]) - exact).max()
    assert 1e-9 < error < 0.05
    assert abs(info.log_likelihood.sum() - evidence) < 0.05


def test_permuted_modes_permute_weights_and_components():
    system, order = random_switching(), np.asarray([2, 0, 1])
    permuted = SwitchingSystem(
        tuple(system.modes[i] for i in order),
        system.transitions[order][:, order],
        system.initial[order],
    )
    inputs = data(system)
    found, info = run_on(IMMFilter(), *switching_model(permuted), *inputs)
    expected, known = run_on(IMMFilter(), *switching_model(system), *inputs)
    assert_close(found.log_weights, expected.log_weights[:, order])
    assert_close(found.components.mean, expected.components.mean[:, order])
    assert_close(info.log_likelihood, known.log_likelihood)
    assert_close(info.innovation, known.innovation)
    assert_close(info.innovation_covariance, known.innovation_covariance)


def test_online_steps_equal_the_batch_run():
    model, trajectory = switching_beacon_model(), beacon_trajectory(5)
    seen = jnp.asarray([[1, 1], [1, 0], [0, 0], [1, 1], [0, 1]], bool)
    inputs = (trajectory.prior, trajectory.inputs, trajectory.readings, seen)
    beliefs, _ = run(IMMFilter(), model, *inputs)
    loop = filtrax.online(IMMFilter(), model)
    belief = loop.init(trajectory.prior, key=jr.key(0))
    for t in range(5):
        reading = np.where(seen[t], trajectory.readings[t], np.nan)
        known = {"inputs": trajectory.inputs[t], "observed": np.asarray(seen[t])}
        belief, info = loop.step(belief, reading, **known)
        for one, many in zip(jax.tree.leaves(belief), jax.tree.leaves(beliefs), strict=True):
            assert_close(one, many[t], 1e-10)
        assert info.finite


def test_beats_the_filter_of_each_single_mode_on_data_that_switch():
    """A target that now and then manoeuvres, with its true model: three sequences, all better."""
    filt, ekf = IMMFilter(), filtrax.ExtendedKalmanFilter()
    model, prior = switching_model(MANOEUVRES)
    singles = [filtrax.in_mode(model, mode) for mode in model.process.modes]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        controls, modes, states, observations = simulate(MANOEUVRES, rng, 300)
        inputs = (controls, observations, np.ones(observations.shape, bool))
        beliefs, info = run_on(filt, model, prior, *inputs)
        score = lambda beliefs, states=states: float(  # noqa: E731
            filtrax.metrics.mean_nll(beliefs, jnp.asarray(states), model.state_space)
        )
        others = [run_on(ekf, single, prior, *inputs) for single in singles]
        assert score(beliefs) < min(score(other) for other, _ in others) - 0.05
        assert info.log_likelihood.sum() > max(i.log_likelihood.sum() for _, i in others) + 10
        found = np.asarray(beliefs.log_weights[:, 1] > np.log(0.5))
        assert (found == modes).mean() > max(modes.mean(), 1 - modes.mean()) + 0.02
