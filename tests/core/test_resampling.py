"""Resamplers: how often a particle is drawn, what it then weighs, and what is differentiated."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.core import subjaxprs

from filtrax import Particles
from filtrax.resampling import (
    EffectiveSampleSize,
    EverySteps,
    Multinomial,
    NoResampling,
    Soft,
    Stratified,
    Systematic,
    schemes,
)

SCHEMES = (Systematic(), Stratified(), Multinomial())
by_scheme = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: type(s).__name__)
WEIGHTS = np.asarray([0.31, 0.0, 0.02, 0.17, 0.05, 0.4, 0.0, 0.05])
COUNT = len(WEIGHTS)
DRAWS = 20_000


def logs(weights, dtype=np.float64):
    with np.errstate(divide="ignore"):
        return jnp.asarray(np.log(weights), dtype)


def numbered(log_weights, age=0):
    """Particles whose state is their own number, so that ancestors can be read off."""
    states = jnp.arange(log_weights.size, dtype=log_weights.dtype)[:, None]
    return Particles(states, log_weights, jnp.asarray(age), jnp.eye(1, dtype=states.dtype))


def resample_often(resampler, log_weights):
    draw = jax.jit(jax.vmap(lambda key: resampler(numbered(log_weights), key=key)))
    return draw(jr.split(jr.key(0), DRAWS))


def mean_counts(resampled):
    ancestors = np.asarray(resampled.states[..., 0]).astype(int)
    return np.bincount(ancestors.ravel(), minlength=COUNT) / len(ancestors)


def assert_expected_counts(found, probabilities):
    # No scheme spreads a particle's count more than independent draws: n p (1 - p).
    deviation = np.sqrt(COUNT * probabilities * (1 - probabilities) / DRAWS)
    assert (np.abs(found - COUNT * probabilities) <= 5 * deviation).all()


@by_scheme
def test_a_particle_has_n_times_its_weight_offspring_on_average_and_the_mean_is_kept(scheme):
    resampled = resample_often(scheme, logs(WEIGHTS))
    assert_expected_counts(mean_counts(resampled), WEIGHTS)
    np.testing.assert_allclose(np.exp(resampled.log_weights), 1 / COUNT, rtol=1e-12)
    assert (resampled.age == 0).all()
    # The weighted mean in expectation; one draw of it has at most the variance of n draws.
    numbers = np.arange(COUNT)
    mean = WEIGHTS @ numbers
    variance = WEIGHTS @ (numbers - mean) ** 2 / COUNT
    means = np.asarray(resampled.states[..., 0]).mean(1)
    assert abs(means.mean() - mean) < 5 * np.sqrt(variance / DRAWS)


@by_scheme
@pytest.mark.parametrize("alpha", [0.05, 0.5])
def test_soft_resampling_draws_from_the_mixture_and_corrects_the_weights(scheme, alpha):
    # Rejects weights that stay in place while particles move (they must be gathered with them),
    # weights that are not corrected, and weights that are not normalized.
    mixture = (1 - alpha) * WEIGHTS + alpha / COUNT
    resampled = resample_often(Soft(alpha, scheme), logs(WEIGHTS))
    assert_expected_counts(mean_counts(resampled), mixture)
    ancestors = np.asarray(resampled.states[..., 0]).astype(int)
    ratios = (WEIGHTS / mixture)[ancestors]
    expected = ratios / ratios.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(resampled.log_weights), expected, atol=1e-12)
    assert (resampled.age == 0).all()


@by_scheme
def test_soft_resampling_keeps_the_weighted_mean_of_many_particles(scheme):
    # Gathering states but not weights moves the mean from about 0.9 to about 0.45 here.
    count, rng = 20_000, np.random.default_rng(0)
    states = rng.normal(size=count)
    weights = np.exp(states - 0.05 * states**2)
    weights /= weights.sum()
    before = Particles(jnp.asarray(states)[:, None], logs(weights), jnp.asarray(0), jnp.eye(1))
    after = jax.jit(lambda particles: Soft(0.5, scheme)(particles, key=jr.key(1)))(before)
    mean = weights @ states
    mixture = 0.5 * weights + 0.5 / count
    # The variance of a self-normalized importance estimate, by the delta method.
    error = np.sqrt(((weights / mixture) ** 2 * mixture * (states - mean) ** 2).sum() / count)
    found = float(jnp.exp(after.log_weights) @ after.states[:, 0])
    assert abs(found - mean) < 5 * error
    assert 5 * error < 0.1


@by_scheme
def test_soft_resampling_with_alpha_zero_is_the_scheme_itself(scheme):
    plain = resample_often(scheme, logs(WEIGHTS))
    soft = resample_often(Soft(0.0, scheme), logs(WEIGHTS))
    np.testing.assert_array_equal(soft.states, plain.states)
    np.testing.assert_allclose(soft.log_weights, plain.log_weights, atol=1e-14)


def test_systematic_counts_are_n_w_rounded_down_or_up():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(COUNT, 0.3), size=2000)
    weights /= weights.sum(1, keepdims=True)
    draw = jax.jit(jax.vmap(lambda w, key: Systematic().ancestors(w, key=key)))
    ancestors = np.asarray(draw(logs(weights), jr.split(jr.key(0), 2000)))
    counts = (ancestors[:, :, None] == np.arange(COUNT)).sum(1)
    assert (counts >= np.floor(COUNT * weights - 1e-9)).all()
    assert (counts <= np.ceil(COUNT * weights + 1e-9)).all()


def test_stratified_positions_have_one_in_each_stratum_and_all_lie_under_one():
    # In single precision (n - 1 + u) / n can round to 1, where the last particle would be drawn
    # whatever its weight.
    almost_one = jnp.asarray([1 - np.finfo(np.float32).epsneg], jnp.float32)
    assert (schemes._strata(100_000, almost_one) < 1).all()
    strata = np.floor(np.asarray(Stratified().positions(50, jnp.float64, key=jr.key(1))) * 50)
    np.testing.assert_array_equal(strata, np.arange(50))


@by_scheme
def test_particles_without_weight_are_never_drawn(scheme):
    # A sum of many weights is rounded; nobody may be drawn from the gaps that rounding leaves.
    count, rng = 50_000, np.random.default_rng(0)
    weights = rng.exponential(size=count)
    weights[rng.random(count) < 0.6] = 0.0
    weights[: count // 10] = weights[-count // 10 :] = 0.0
    log_weights = logs(weights / weights.sum(), np.float32)

    @jax.jit
    def number_of_bad_draws(log_weights, key):
        return (log_weights[scheme.ancestors(log_weights, key=key)] == -jnp.inf).sum()

    assert sum(int(number_of_bad_draws(log_weights, jr.key(seed))) for seed in range(40)) == 0


@by_scheme
def test_counting_in_a_table_finds_the_ancestors_that_a_search_does(scheme):
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=(200, 300)) * (rng.random((200, 300)) < 0.4)
    weights[0] = np.eye(300)[17]
    draw = jax.vmap(lambda key: scheme.positions(300, jnp.float64, key=key))
    positions = draw(jr.split(jr.key(0), 200)).at[1, 0].set(0.0)
    ways = [jax.vmap(way)(weights, positions) for way in (schemes._by_table, schemes._by_search)]
    np.testing.assert_array_equal(*ways)


def test_counting_in_a_table_draws_no_particle_without_weight():
    # The last position under one is the hardest: its share may not be rounded to all the weight.
    count, rng = 1000, np.random.default_rng(0)
    weights = rng.exponential(size=(200, count)) * (rng.random((200, count)) < 0.4)
    weights[:, -100:] = 0.0
    weights = jnp.asarray(weights, jnp.float32)
    positions = schemes._strata(count, jnp.asarray([1 - np.finfo(np.float32).epsneg], jnp.float32))
    chosen = jax.jit(jax.vmap(schemes._by_table, (0, None)))(weights, positions)
    assert (jnp.take_along_axis(weights, chosen, 1) > 0).all()


@by_scheme
@pytest.mark.parametrize("count", [schemes.LARGEST_TABLE, schemes.LARGEST_TABLE + 1])
def test_resampling_on_a_gpu_has_no_loop(scheme, count):
    # Rejects a search whose every halving is several launches.
    spec = jax.ShapeDtypeStruct((count,), jnp.float32)
    traced = jax.jit(lambda w: Soft(0.1, scheme)(numbered(w), key=jr.key(0))).trace(spec)
    texts = {name: traced.lower(lowering_platforms=(name,)).as_text() for name in ("cpu", "cuda")}
    assert "stablehlo.while" in texts["cpu"]
    assert not [name for name in ("stablehlo.while", "stablehlo.sort") if name in texts["cuda"]]


def _largest_array(jaxpr):
    sizes = [
        var.aval.size
        for equation in jaxpr.eqns
        for var in (*equation.invars, *equation.outvars)
        if hasattr(var.aval, "size")
    ]
    inner = [_largest_array(sub) for sub in subjaxprs(jaxpr)]
    return max(sizes + inner, default=0)


@by_scheme
def test_memory_is_linear_in_the_number_of_particles(scheme):
    # Rejects a table of all particles against all positions.
    count = 100_000
    spec = jax.ShapeDtypeStruct((count,), jnp.float32)
    for resampler in (scheme, Soft(0.1, scheme)):
        traced = jax.make_jaxpr(lambda w, r=resampler: r(numbered(w), key=jr.key(0)))(spec)
        assert count <= _largest_array(traced.jaxpr) <= 4 * count


def _ages_and_resamplings(resampler, log_weights, steps):
    particles, history = numbered(log_weights), []
    resample = jax.jit(lambda particles, key: resampler(particles, key=key))
    for step in range(1, steps + 1):
        particles = resample(particles, jr.key(step))
        history.append(int(particles.age))
        # A step of a filter would change the weights; resampling shows by equal ones.
        particles = eqx.tree_at(lambda p: p.log_weights, particles, log_weights)
    return history


def test_every_steps_resamples_on_steps_k_2k_and_so_on():
    # Rejects an offset by one, which resamples on the first step or counts to k + 1.
    weights = logs(WEIGHTS)
    assert _ages_and_resamplings(EverySteps(3, Systematic()), weights, 7) == [1, 2, 0, 1, 2, 0, 1]
    assert _ages_and_resamplings(EverySteps(1, Systematic()), weights, 3) == [0, 0, 0]
    assert _ages_and_resamplings(NoResampling(), weights, 3) == [1, 2, 3]


def test_a_step_without_resampling_changes_nothing_but_the_age():
    particles = numbered(logs(WEIGHTS), age=4)
    for resampler in (
        NoResampling(),
        EverySteps(9, Systematic()),
        EffectiveSampleSize(0.1, Systematic()),
    ):
        kept = resampler(particles, key=jr.key(0))
        np.testing.assert_array_equal(kept.states, particles.states)
        np.testing.assert_array_equal(kept.log_weights, particles.log_weights)
        assert kept.age == 5


def test_effective_sample_size_triggers_under_its_threshold_only():
    size = 1 / (WEIGHTS**2).sum() / COUNT
    particles = numbered(logs(WEIGHTS), age=2)
    over = EffectiveSampleSize(size + 1e-6, Systematic())(particles, key=jr.key(0))
    assert over.age == 0
    np.testing.assert_allclose(np.exp(over.log_weights), 1 / COUNT)
    assert EffectiveSampleSize(size - 1e-6, Systematic())(particles, key=jr.key(0)).age == 3


def test_triggers_go_around_each_other():
    both = EffectiveSampleSize(1.0, EverySteps(2, Soft(0.1, Stratified())))
    assert _ages_and_resamplings(both, logs(WEIGHTS), 4) == [1, 0, 1, 0]


SLOPES = np.random.default_rng(3).normal(size=(2, 5000))


def _weighted_mean(resampler, parameter, states):
    """The weighted mean after resampling, of particles whose weights follow a parameter."""
    log_weights = jax.nn.log_softmax(parameter * jnp.asarray(SLOPES[0]))
    particles = Particles(states[:, None], log_weights, jnp.asarray(0), jnp.eye(1))
    resampled = resampler(particles, key=jr.key(5))
    return jnp.exp(resampled.log_weights) @ resampled.states[:, 0]


def test_soft_resampling_with_alpha_one_has_the_exact_gradient_of_the_weighted_mean():
    # Rejects new weights that are cut from the old ones, or not corrected by the mixture.
    states, parameter = jnp.asarray(SLOPES[0] + SLOPES[1]), jnp.asarray(0.7)
    gradients = {
        name: float(jax.jit(jax.grad(lambda p, r=r: _weighted_mean(r, p, states)))(parameter))
        for name, r in {
            "exact": NoResampling(),
            "systematic": Soft(1.0, Systematic()),
            "multinomial": Soft(1.0, Multinomial()),
        }.items()
    }
    # Evenly spread positions draw each particle exactly once.
    np.testing.assert_allclose(gradients["systematic"], gradients["exact"], rtol=1e-9)
    weights = np.exp(0.7 * SLOPES[0])
    weights /= weights.sum()
    slopes, values = SLOPES[0] - weights @ SLOPES[0], np.asarray(states) - weights @ states
    covariance = weights @ (slopes * values)
    # d mean / d p is the weighted covariance of slope and state; the influence of one draw on
    # it gives the variance of the estimate.
    np.testing.assert_allclose(gradients["exact"], covariance, rtol=1e-9)
    count = len(weights)
    influence = count * weights * (slopes * values - covariance)
    error = np.sqrt((influence**2).mean() / count)
    assert abs(gradients["multinomial"] - covariance) < 5 * error
    assert 5 * error < 0.5 * abs(covariance)


@by_scheme
def test_plain_schemes_pass_gradients_through_states_but_not_through_weights(scheme):
    states, parameter = jnp.asarray(SLOPES[0] + SLOPES[1]), jnp.asarray(0.7)
    gradient = jax.jit(jax.grad(lambda p, s: _weighted_mean(scheme, p, s), argnums=(0, 1)))
    by_parameter, by_state = gradient(parameter, states)
    assert by_parameter == 0
    log_weights = jax.nn.log_softmax(parameter * jnp.asarray(SLOPES[0]))
    counts = np.bincount(scheme.ancestors(log_weights, key=jr.key(5)), minlength=len(states))
    np.testing.assert_allclose(by_state, counts / len(states), atol=1e-15)


def test_soft_gradients_are_finite_where_a_weight_underflows():
    def scored(scores):
        particles = numbered(jax.nn.log_softmax(scores))
        return Soft(0.1)(particles, key=jr.key(0)).log_weights.max()

    scores = jnp.asarray([0.0, -1e3, -1e4, -10.0], jnp.float32)
    assert jnp.isfinite(jax.jit(jax.grad(scored))(scores)).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Soft(1.5), "`alpha` must be between 0 and 1, got 1.5"),
        (lambda: Soft(-0.1), "`alpha` must be between 0 and 1"),
        (lambda: EverySteps(0, Systematic()), "`steps` must be at least 1, got 0"),
        (lambda: EffectiveSampleSize(1.1, Systematic()), "`threshold` must be a fraction"),
    ],
)
def test_numbers_without_meaning_raise(build, message):
    with pytest.raises(ValueError, match=message):
        build()
