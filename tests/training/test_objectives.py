"""Objectives against formulas in NumPy on a small linear model."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import filtrax
from filtrax import (
    DirectSensor,
    ExtendedKalmanFilter,
    Features,
    RecurrentFilter,
    Space,
    StateSpaceModel,
    Trajectory,
    constant_noise,
)
from filtrax.likelihoods import AbstractLikelihood
from filtrax.training import (
    LikelihoodContrast,
    StepSchedule,
    filtering,
    l2,
    measurement_nll,
    process_nll,
    sensor_nll,
    weighted,
)
from filtrax.training.protocols import seen_by

A = np.asarray([[0.9, 0.2], [-0.1, 0.8]])
B = np.asarray([1.0, -2.0])
Q = np.asarray([[0.5, 0.2], [0.2, 0.3]])
H = np.asarray([[1.0, 0.5], [0.3, -1.0]])
R = np.asarray([[0.4, 0.1], [0.1, 0.6]])
STEPS = 6
RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(STEPS, 2))
CONTROLS = RNG.normal(size=STEPS)
READINGS = RNG.normal(size=(STEPS, 2))
LABELLED = np.asarray([[1, 1], [1, 1], [1, 0], [0, 0], [1, 1], [1, 1]], bool)
OBSERVED = np.asarray([[1, 1], [0, 0], [1, 1], [1, 1], [0, 1], [1, 1]], bool)
PROGRESS = jnp.asarray(0.25)
EKF = ExtendedKalmanFilter()


class Linear(eqx.Module):
    matrix: jax.Array

    control: jax.Array | None = None

    def __call__(self, state, inputs):
        moved = self.matrix @ state
        return moved if self.control is None else moved + self.control * inputs


MODEL = StateSpaceModel(
    state_space=Space(("x", "v")),
    observation_space=Space(("y", "z")),
    process=Linear(jnp.asarray(A), filtrax.given(B)),
    process_noise=constant_noise(Q),
    observe=Linear(jnp.asarray(H)),
    sensor=DirectSensor(constant_noise(R)),
)
PARAMETERS = [A, H, MODEL.process_noise.offset, MODEL.sensor.noise.offset]


def trajectory(labelled=LABELLED, observed=OBSERVED, undefined=None):
    """What is not labelled or observed is not a number. Without labels there are no states."""
    return Trajectory(
        initial=jnp.asarray([0.5, -0.5]),
        initial_covariance=jnp.eye(2),
        inputs=jnp.asarray(CONTROLS),
        readings=jnp.asarray(np.where(observed, READINGS, np.nan)),
        states=None if labelled is None else jnp.asarray(np.where(labelled, STATES, np.nan)),
        observed=jnp.asarray(observed),
        labelled=None if labelled is None else jnp.asarray(labelled),
        undefined=undefined,
    )


def negative_log_density(difference, covariance, mask):
    block = covariance[np.ix_(mask, mask)]
    return -multivariate_normal.logpdf(difference[mask], cov=block)


def kalman():
    """Means and covariances after each step, and the log density of each measurement."""
    mean, covariance = np.asarray([0.5, -0.5]), np.eye(2)
    moments, densities = [], []
    for control, reading, seen in zip(CONTROLS, READINGS, OBSERVED, strict=True):
        mean, covariance = A @ mean + B * control, A @ covariance @ A.T + Q
        if seen.any():
            h, innovation = H[seen], reading[seen] - H[seen] @ mean
            spread = h @ covariance @ h.T + R[np.ix_(seen, seen)]
            densities.append(multivariate_normal.logpdf(innovation, cov=spread))
            gain = covariance @ h.T @ np.linalg.inv(spread)
            mean, covariance = mean + gain @ innovation, covariance - gain @ spread @ gain.T
        moments.append((mean, covariance))
    return moments, densities


@eqx.filter_jit
def value_and_gradient(objective, model, trajectory):
    def of_model(model):
        both = seen_by(objective, EKF, model)
        return objective(*both, trajectory, PROGRESS, jax.random.key(0))

    return eqx.filter_value_and_grad(of_model)(model)


def assert_value(objective, expected, trajectory=trajectory()):  # noqa: B008
    value, gradient = value_and_gradient(objective, MODEL, trajectory)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    return gradient


def test_filtering_averages_the_loss_over_labelled_steps():
    moments, _ = kalman()
    expected = [
        negative_log_density(STATES[t] - moments[t][0], moments[t][1], LABELLED[t])
        for t in range(STEPS)
        if LABELLED[t].any()
    ]
    gradient = assert_value(filtering(filtrax.losses.nll), np.mean(expected))
    assert jnp.abs(gradient.process_noise.bias).min() > 0


def test_filtering_is_the_same_objective_for_the_same_loss():
    # Rejects a new function each time, whose compiled programs are never found again.
    assert filtering(filtrax.losses.nll) == filtering(filtrax.losses.nll)
    assert filtering(filtrax.losses.nll) != filtering(filtrax.losses.squared_error)


def test_measurement_nll_is_the_mean_log_evidence_of_the_observed_steps_without_any_states():
    _, densities = kalman()
    assert len(densities) == STEPS - 1
    gradient = assert_value(measurement_nll, -np.mean(densities), trajectory(labelled=None))
    assert jnp.abs(gradient.sensor.noise.bias).min() > 0


def test_measurement_nll_needs_a_filter_with_a_likelihood(key):
    recurrent = RecurrentFilter(
        Features(MODEL.state_space), 2, input_size=1, hidden_size=4, key=key
    )
    with pytest.raises(ValueError, match="RecurrentFilter has none"):
        jax.eval_shape(lambda: measurement_nll(recurrent, MODEL, trajectory(), PROGRESS, key))


def test_sensor_nll_scores_measurements_against_what_should_be_seen():
    # Steps count whose state is wholly known and of which something was observed.
    counted = LABELLED.all(1) & OBSERVED.any(1)
    expected = [
        negative_log_density(READINGS[t] - H @ STATES[t], R, OBSERVED[t])
        for t in np.flatnonzero(counted)
    ]
    gradient = assert_value(sensor_nll, np.mean(expected))
    assert jnp.abs(gradient.sensor.noise.bias).min() > 0
    assert jnp.abs(gradient.process.matrix).max() == 0


def test_process_nll_scores_single_steps_between_known_states():
    # Rejects the inputs of the step before, and pairs that begin at an unknown state.
    pairs = [t for t in range(1, STEPS) if LABELLED[t - 1].all() and LABELLED[t].any()]
    expected = [
        negative_log_density(STATES[t] - A @ STATES[t - 1] - B * CONTROLS[t], Q, LABELLED[t])
        for t in pairs
    ]
    assert pairs == [1, 2, 5]
    gradient = assert_value(process_nll, np.mean(expected))
    assert jnp.abs(gradient.process.matrix).min() > 0
    assert jnp.abs(gradient.sensor.noise.bias).max() == 0


def test_undefined_components_are_left_out_of_the_objectives_and_taken_for_zero():
    # The observation z has the name of an undefined component; y has none of a state.
    spaces = (Space(("x", "z")), Space(("y", "z")))
    model = dataclasses.replace(MODEL, state_space=spaces[0], observation_space=spaces[1])
    without = trajectory(np.ones((STEPS, 2), bool), undefined=jnp.asarray([False, True]))
    states, first = STATES * [1, 0], np.asarray([True, False])
    expected = [
        negative_log_density(READINGS[t] - H @ states[t], R, OBSERVED[t] & first)
        for t in range(STEPS)
        if OBSERVED[t, 0]
    ]
    # Step 4 was read, but nothing of it that is defined: it counts as zero.
    value, _ = value_and_gradient(sensor_nll, model, without)
    np.testing.assert_allclose(value, np.sum(expected) / OBSERVED.any(1).sum(), rtol=1e-9)
    expected = [
        negative_log_density(states[t] - A @ states[t - 1] - B * CONTROLS[t], Q, first)
        for t in range(1, STEPS)
    ]
    value, _ = value_and_gradient(process_nll, model, without)
    np.testing.assert_allclose(value, np.mean(expected), rtol=1e-9)


def test_l2_is_the_sum_of_all_squared_parameters():
    gradient = assert_value(l2, sum((np.asarray(leaf) ** 2).sum() for leaf in PARAMETERS))
    np.testing.assert_allclose(gradient.process.matrix, 2 * A)


def test_weighted_sums_objectives_with_numbers_and_schedules_of_the_progress():
    def sum_of_states(filt, model, trajectory, progress, key):
        return trajectory.known_states()[0].sum()

    squares = sum((np.asarray(leaf) ** 2).sum() for leaf in PARAMETERS)
    terms = {sum_of_states: 2.0, l2: lambda progress: 1.0 - progress}
    assert_value(weighted(terms), 2.0 * STATES[LABELLED].sum() + 0.75 * squares)
    with pytest.raises(ValueError, match="at least one objective"):
        weighted({})


@pytest.mark.parametrize("objective", [filtering(filtrax.losses.nll), sensor_nll, process_nll])
def test_a_trajectory_without_labels_gives_zero_and_zero_gradient(objective):
    # Rejects 0 / 0, and NaN states that leak into the gradient of a masked loss.
    nothing = trajectory(labelled=np.zeros((STEPS, 2), bool))
    value, gradient = value_and_gradient(objective, MODEL, nothing)
    assert value == 0
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("objective", [measurement_nll, sensor_nll])
def test_a_trajectory_without_observations_gives_zero_and_zero_gradient(objective):
    labelled = None if objective is measurement_nll else LABELLED
    nothing = trajectory(labelled, observed=np.zeros((STEPS, 2), bool))
    value, gradient = value_and_gradient(objective, MODEL, nothing)
    assert value == 0
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))


def test_weighted_runs_the_sensor_once_and_its_gradient_is_the_sum_of_gradients():
    calls = []

    class Counting(eqx.Module):
        sensor: DirectSensor

        def __call__(self, reading, inputs, context, *, key):
            calls.append(1)
            return self.sensor(reading, inputs, context, key=key)

    terms = {sensor_nll: 0.5, filtering(filtrax.losses.nll): 2.0, l2: 0.1}
    counting = eqx.tree_at(lambda m: m.sensor, MODEL, Counting(MODEL.sensor))
    value, gradient = value_and_gradient(weighted(terms), counting, trajectory())
    assert len(calls) == 1
    parts = [value_and_gradient(term, MODEL, trajectory()) for term in terms]
    total = sum(w * part for w, (part, _) in zip(terms.values(), parts, strict=True))
    np.testing.assert_allclose(value, total)
    # The squares of the sensor's parameters are among those of the model.
    summed = jax.tree.map(
        lambda *leaves: sum(w * leaf for w, leaf in zip(terms.values(), leaves, strict=True)),
        *(gradient for _, gradient in parts),
    )
    for ours, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(summed), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_step_schedule_is_a_weight_that_ends():
    weights = [StepSchedule(0.2, 3.0)(jnp.asarray(progress)) for progress in (0.0, 0.19, 0.2, 1.0)]
    np.testing.assert_array_equal(weights, [3, 3, 0, 0])
    assert StepSchedule(0.2)(jnp.asarray(0.1, jnp.float32)).dtype == jnp.float32


class Slope(AbstractLikelihood):
    """A likelihood that says how far an observation is from the measurement."""

    slope: jax.Array

    def __call__(self, expected, measurement, inputs, space):
        del inputs
        difference = space.difference(expected, measurement.value)
        return self.slope * (difference @ difference - 2.0)


def softplus(x):
    return np.logaddexp(0, x)


def test_likelihood_contrast_is_cross_entropy_of_near_and_far_observations(key):
    # Rejects near and far mixed up, and scores taken as probabilities.
    # Without spread the samples are known: the true observation, and that plus or minus five.
    contrast = LikelihoodContrast(near_std=0.0, far_mean=5.0, far_std=0.0, num_samples=2)
    model = eqx.tree_at(lambda m: m.likelihood, MODEL, Slope(jnp.asarray(-0.3)))
    counted = LABELLED.all(1) & OBSERVED.any(1)
    seen = np.where(OBSERVED, READINGS, 0.0)
    offsets = STATES @ H.T - seen

    def score(offset):
        return -0.3 * ((offset**2).sum(-1) - 2.0)

    far = (softplus(score(offsets + 5)) + softplus(score(offsets - 5))) / 2
    expected = (softplus(-score(offsets)) + far)[counted].mean()
    value, gradient = value_and_gradient(contrast, model, trajectory())
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    assert jnp.isfinite(gradient.likelihood.slope)
    flat = eqx.tree_at(lambda m: m.likelihood, MODEL, Slope(jnp.asarray(0.0)))
    # Down the gradient, the far ones get less.
    assert value_and_gradient(contrast, flat, trajectory())[1].likelihood.slope > 0
    spread = LikelihoodContrast(0.5, 5.0, 1.0, 4)
    plain = seen_by(spread, EKF, model)
    values = {float(spread(*plain, trajectory(), PROGRESS, jax.random.key(i))) for i in (0, 1)}
    assert len(values) == 2


def test_likelihood_contrast_has_the_given_spreads_and_one_exact_sample(key, monkeypatch):
    class First(AbstractLikelihood):
        def __call__(self, expected, measurement, inputs, space):
            return expected[0]

    drawn = []
    monkeypatch.setattr(jax.nn, "softplus", lambda x: drawn.append(np.asarray(x)) or x)
    zero = jnp.zeros((STEPS, 2))
    still = Trajectory(jnp.zeros(2), jnp.eye(2), zero, inputs=jnp.asarray(CONTROLS), states=zero)
    model = eqx.tree_at(lambda m: m.likelihood, MODEL, First())
    LikelihoodContrast(2.0, 40.0, 5.0, 200)(EKF, model, still, PROGRESS, key)
    near, far = drawn
    assert near.shape == far.shape == (STEPS, 200)
    np.testing.assert_array_equal(near[:, 0], 0)
    bound = 5 / np.sqrt(2 * near.size)
    np.testing.assert_allclose(near[:, 1:].std(), 2.0, rtol=bound)
    assert np.sign(far).sum() == 0
    np.testing.assert_allclose(np.abs(far).mean(), 40.0, atol=5 * bound * 5)
    np.testing.assert_allclose(np.abs(far).std(), 5.0, rtol=bound)
