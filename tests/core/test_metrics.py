"""Each metric against a formula written in NumPy, over leading axes and masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from filtrax import Gaussian, Info, Measurement, Particles, Space, losses, metrics

SPACE = Space(("x", "y", "heading"), angles={"heading": 360.0})
BATCH, STEPS = 3, 5
RNG = np.random.default_rng(0)


def random_covariances(*shape):
    factors = RNG.normal(size=(*shape, 3, 3))
    return factors @ np.swapaxes(factors, -1, -2) + 0.5 * np.eye(3)


MEANS = RNG.normal(loc=[0.0, 5.0, 179.0], size=(BATCH, STEPS, 3))
COVARIANCES = random_covariances(BATCH, STEPS)
ERRORS = RNG.normal(size=(BATCH, STEPS, 3)) * [1.0, 2.0, 20.0]
STATES = MEANS + ERRORS
STATES[..., 2] -= 360.0 * (STATES[..., 2] >= 180.0)
BELIEFS = Gaussian(MEANS, COVARIANCES)
BY_STEP = RNG.random((BATCH, STEPS)) < 0.6
BY_COMPONENT = RNG.random((BATCH, STEPS, 3)) < 0.6
HIDDEN = np.where(BY_COMPONENT, STATES, np.nan)


def test_mean_distance_is_the_mean_euclidean_distance():
    # Rejects the root of the mean square, which the paper's tables only call so.
    distances = np.linalg.norm(ERRORS, axis=-1)
    found = metrics.mean_distance(BELIEFS, STATES, SPACE)
    np.testing.assert_allclose(found, distances.mean())
    assert abs(np.sqrt((distances**2).mean()) - distances.mean()) > 0.1
    found = metrics.mean_distance(BELIEFS, STATES, SPACE, labelled=BY_STEP)
    np.testing.assert_allclose(found, distances[BY_STEP].mean())


def test_mean_distance_takes_named_components_and_labelled_ones_only():
    found = metrics.mean_distance(BELIEFS, STATES, SPACE, components=("heading", "x"))
    np.testing.assert_allclose(found, np.linalg.norm(ERRORS[..., [0, 2]], axis=-1).mean())
    squares = np.where(BY_COMPONENT, ERRORS**2, 0)[..., :2].sum(-1)
    counted = BY_COMPONENT[..., :2].any(-1)
    found = metrics.mean_distance(
        BELIEFS, HIDDEN, SPACE, components=("x", "y"), labelled=BY_COMPONENT
    )
    np.testing.assert_allclose(found, np.sqrt(squares[counted]).mean())
    with pytest.raises(ValueError, match=r"Did you mean 'heading'\?"):
        metrics.mean_distance(BELIEFS, STATES, SPACE, components=("headin",))


def test_component_errors_are_mean_absolute_errors_by_name():
    found = metrics.component_errors(BELIEFS, HIDDEN, SPACE, labelled=BY_COMPONENT)
    assert set(found) == set(SPACE.names)
    for j, name in enumerate(SPACE.names):
        expected = np.abs(ERRORS[..., j])[BY_COMPONENT[..., j]].mean()
        np.testing.assert_allclose(found[name], expected)


def test_mean_nll_is_scipys_over_what_is_labelled():
    densities = np.zeros((BATCH, STEPS))
    for index in np.ndindex(BATCH, STEPS):
        mask = BY_COMPONENT[index]
        if mask.any():
            block = COVARIANCES[index][np.ix_(mask, mask)]
            densities[index] = multivariate_normal.logpdf(ERRORS[index][mask], cov=block)
    found = metrics.mean_nll(BELIEFS, HIDDEN, SPACE, labelled=BY_COMPONENT)
    np.testing.assert_allclose(found, -densities[BY_COMPONENT.any(-1)].mean())


def test_mean_mixture_nll_is_the_mean_of_the_loss():
    particles = Particles(
        jnp.asarray(MEANS[:, :, None] + RNG.normal(size=(BATCH, STEPS, 4, 3))),
        jnp.full((BATCH, STEPS, 4), np.log(0.25)),
        jnp.zeros((BATCH, STEPS), int),
        jnp.asarray(np.linalg.cholesky(COVARIANCES)),
    )
    chosen = jax.tree.map(lambda leaf: leaf[BY_STEP], particles)
    one_by_one = jax.jit(jax.vmap(losses.mixture_nll, (0, 0, None)))
    values = one_by_one(chosen, jnp.asarray(STATES[BY_STEP]), SPACE)
    found = metrics.mean_mixture_nll(particles, STATES, SPACE, labelled=BY_STEP)
    np.testing.assert_allclose(found, values.mean())


def test_sensor_error_is_the_mean_distance_of_what_was_observed():
    measurements = Measurement(jnp.asarray(MEANS), jnp.asarray(COVARIANCES))
    found = metrics.sensor_error(measurements, STATES, SPACE)
    np.testing.assert_allclose(found, np.linalg.norm(ERRORS, axis=-1).mean())
    found = metrics.sensor_error(measurements, STATES, SPACE, observed=BY_COMPONENT)
    squares = np.where(BY_COMPONENT, ERRORS**2, 0).sum(-1)
    np.testing.assert_allclose(found, np.sqrt(squares[BY_COMPONENT.any(-1)]).mean())


def test_nees_is_the_squared_mahalanobis_distance_of_each_step():
    found = metrics.nees(BELIEFS, STATES, SPACE)
    expected = np.einsum("bti,btij,btj->bt", ERRORS, np.linalg.inv(COVARIANCES), ERRORS)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    found = metrics.nees(BELIEFS, HIDDEN, SPACE, labelled=BY_COMPONENT)
    for index in np.ndindex(BATCH, STEPS):
        mask = BY_COMPONENT[index]
        error, block = ERRORS[index][mask], COVARIANCES[index][np.ix_(mask, mask)]
        np.testing.assert_allclose(found[index], error @ np.linalg.inv(block) @ error, atol=1e-9)


def consistent_beliefs(count):
    """Beliefs and states that are drawn from them."""
    covariances = random_covariances(count)
    noise = np.einsum("nij,nj->ni", np.linalg.cholesky(covariances), RNG.normal(size=(count, 3)))
    means = RNG.uniform(-180, 180, size=(count, 3))
    return Gaussian(means, covariances), means + noise


def test_nees_of_consistent_beliefs_averages_to_the_dimension():
    # χ² with 3 degrees of freedom has variance 6. Overconfidence by a tenth is rejected.
    count = 20_000
    beliefs, states = consistent_beliefs(count)
    bound = 5 * np.sqrt(6 / count)
    assert abs(metrics.nees(beliefs, states, SPACE).mean() - 3) < bound
    confident = Gaussian(beliefs.mean, 0.9 * beliefs.covariance)
    assert abs(metrics.nees(confident, states, SPACE).mean() - 3) > bound


@pytest.mark.parametrize("probability", [0.5, 0.9])
def test_coverage_of_consistent_beliefs_is_the_probability(probability):
    count = 20_000
    beliefs, states = consistent_beliefs(count)
    found = metrics.coverage(beliefs, states, SPACE, probability=probability)
    assert set(found) == set(SPACE.names)
    bound = 5 * np.sqrt(probability * (1 - probability) / count)
    assert all(abs(value - probability) < bound for value in found.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_coverage_counts_labelled_components_within_the_central_interval(dtype):
    beliefs = Gaussian(jnp.asarray(MEANS, dtype), jnp.asarray(COVARIANCES, dtype))
    states = jnp.asarray(HIDDEN, dtype)
    found = metrics.coverage(beliefs, states, SPACE, probability=0.7, labelled=BY_COMPONENT)
    stds = np.sqrt(np.diagonal(COVARIANCES, axis1=-2, axis2=-1))
    inside = np.abs(ERRORS) <= norm.ppf(0.85) * stds
    for j, name in enumerate(SPACE.names):
        expected = inside[..., j][BY_COMPONENT[..., j]].mean()
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)
    with pytest.raises(ValueError, match="`probability` must lie between 0 and 1"):
        metrics.coverage(BELIEFS, STATES, SPACE, probability=1.0)


def test_nis_is_the_squared_mahalanobis_distance_of_innovations():
    finite = jnp.ones((BATCH, STEPS), bool)
    info = Info(
        finite=finite,
        innovation=jnp.asarray(ERRORS),
        innovation_covariance=jnp.asarray(COVARIANCES),
    )
    expected = np.einsum("bti,btij,btj->bt", ERRORS, np.linalg.inv(COVARIANCES), ERRORS)
    np.testing.assert_allclose(metrics.nis(info), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="NIS needs a filter with innovations"):
        metrics.nis(Info(finite=finite))


def test_bhattacharyya_distance_is_zero_for_equal_covariances_and_positive_for_others():
    ours, true = jnp.asarray(random_covariances(50)), jnp.asarray(random_covariances(50))
    np.testing.assert_allclose(metrics.bhattacharyya_distance(true, true), 0, atol=1e-13)
    apart = jax.vmap(metrics.bhattacharyya_distance)(ours, true)
    assert (apart > 1e-3).all()
    np.testing.assert_allclose(metrics.bhattacharyya_distance(ours, true), apart.mean())
    np.testing.assert_allclose(metrics.bhattacharyya_distance(true, ours), apart.mean())


def test_bhattacharyya_distance_of_scalars_has_its_closed_form():
    # ½ ln((a + b) / (2 √(a b))); 0.25 ln(...) is the form with squared terms inside.
    for a, b in ((1.0, 4.0), (0.01, 100.0)):
        found = metrics.bhattacharyya_distance(jnp.asarray([[a]]), jnp.asarray([[b]]))
        np.testing.assert_allclose(found, 0.5 * np.log((a + b) / (2 * np.sqrt(a * b))))


def test_bhattacharyya_distance_compares_many_covariances_with_one():
    ours, true = jnp.asarray(random_covariances(BATCH, STEPS)), jnp.asarray(np.eye(3))
    expected = metrics.bhattacharyya_distance(ours, jnp.broadcast_to(true, ours.shape))
    np.testing.assert_allclose(metrics.bhattacharyya_distance(ours, true), expected)


def test_noise_correlation_is_numpys_averaged_over_components():
    covariate = RNG.normal(size=(BATCH, STEPS))
    stds = np.sqrt(np.diagonal(COVARIANCES, axis1=-2, axis2=-1)).reshape(-1, 3)
    expected = [np.corrcoef(stds[:, j], covariate.ravel())[0, 1] for j in range(3)]
    found = metrics.noise_correlation(jnp.asarray(COVARIANCES), covariate)
    np.testing.assert_allclose(found, np.mean(expected))
    with pytest.raises(ValueError, match=r"`covariate` must have shape \(3, 5\)"):
        metrics.noise_correlation(jnp.asarray(COVARIANCES), covariate[0])


def test_noise_correlation_of_a_linear_dependence_is_one_or_minus_one():
    covariate = np.linspace(1.0, 2.0, 20)
    covariances = jnp.asarray((covariate**2)[:, None, None] * np.eye(2))
    np.testing.assert_allclose(metrics.noise_correlation(covariances, covariate), 1)
    np.testing.assert_allclose(metrics.noise_correlation(covariances, -covariate), -1)


def test_one_step_without_leading_axes_is_enough():
    belief = Gaussian(MEANS[0, 0], COVARIANCES[0, 0])
    found = metrics.mean_distance(belief, STATES[0, 0], SPACE)
    np.testing.assert_allclose(found, np.linalg.norm(ERRORS[0, 0]))


def test_without_any_label_a_metric_is_not_a_number():
    # Rejects a zero, which would read as perfect.
    nobody = np.zeros((BATCH, STEPS), bool)
    assert np.isnan(metrics.mean_distance(BELIEFS, STATES, SPACE, labelled=nobody))
    assert np.isnan(metrics.mean_nll(BELIEFS, STATES, SPACE, labelled=nobody))


def test_states_of_the_wrong_size_raise():
    with pytest.raises(ValueError, match=r"`states` must have shape \(3, 5, 3\), got \(3, 5, 2\)"):
        metrics.mean_distance(BELIEFS, STATES[..., :2], SPACE)
