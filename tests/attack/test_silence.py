"""Numbers that would be wrong in silence are read as they are meant, or refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
import filtrax.filters.base
import filtrax.metrics
from attack.attacks import _model_parts
from filtrax.cli.tables import check_convergence

READINGS = np.random.default_rng(0).normal(size=(6, 2))
PRIOR = filtrax.Gaussian([0.0, 0.0], jnp.eye(2))


def means(readings, **options):
    return filtrax.run(*_model_parts(), PRIOR, readings, **options).beliefs.mean


def test_the_mask_of_a_masked_array_is_the_mask():
    # Rejects a program that reads what lies beneath: the mean was -372.
    mask = np.zeros((6, 2), bool)
    mask[2, 0] = mask[4] = True
    masked = np.ma.masked_array(np.where(mask, -999.0, READINGS), mask)
    expected = means(READINGS, observed=~mask)
    np.testing.assert_array_equal(means(masked), expected)
    both = means(masked, observed=np.arange(6) != 1)
    also = ~mask & (np.arange(6) != 1)[:, None]
    np.testing.assert_array_equal(both, means(READINGS, observed=also))
    loop = filtrax.online(*_model_parts())
    belief = loop.init(PRIOR)
    for reading in masked:
        belief, _ = loop.step(belief, reading)
    np.testing.assert_allclose(belief.mean, expected[-1], rtol=1e-12)


def test_masks_that_nothing_can_read_are_refused():
    masked = np.ma.masked_array(READINGS, READINGS > 1)
    with pytest.raises(ValueError, match="`readings` must be plain arrays, got one with a mask"):
        filtrax.Trajectory(np.zeros(2), np.eye(2), masked)


def test_a_filter_is_loaded_with_the_constants_it_was_saved_with(tmp_path):
    filt, model = _model_parts()
    filtrax.save(tmp_path / "a.npz", filtrax.ExtendedKalmanFilter(iterations=3), model)
    with pytest.raises(ValueError, match=r"filter\.iterations = 3, but .* has 1"):
        filtrax.load(tmp_path / "a.npz", filt, model)
    # How many particles there are may differ between training and test.
    filtrax.save(tmp_path / "b.npz", filtrax.ParticleFilter(5), model)
    filtrax.load(tmp_path / "b.npz", filtrax.ParticleFilter(9), model)


def test_a_type_that_numpy_cannot_write_is_not_saved(tmp_path):
    filt, model = _model_parts()
    model = dataclasses.replace(model, process_noise=filtrax.constant_noise([1.0, 2.0]))
    noise = dataclasses.replace(model.process_noise, bias=jnp.zeros(2, jnp.bfloat16))
    with pytest.raises(ValueError, match="of a type that NumPy knows, got bfloat16"):
        filtrax.save(tmp_path / "a.npz", filt, dataclasses.replace(model, process_noise=noise))
    assert not [*tmp_path.iterdir()]


def test_a_state_for_each_belief_and_a_kernel_for_each_component():
    beliefs = filtrax.run(*_model_parts(), PRIOR, READINGS).beliefs
    with pytest.raises(ValueError, match="one state for each belief"):
        filtrax.metrics.mean_distance(beliefs, np.zeros(2), filtrax.Euclidean())
    particles = filtrax.ParticleFilter(5, kernel=filtrax.constant_noise([1.0] * 3))
    with pytest.raises(ValueError, match="noise of the 2 components of the state, got one of 3"):
        particles.init(_model_parts()[1], PRIOR, key=jax.random.key(0))


@pytest.mark.parametrize(("values", "bad"), [([1.0, 2.0], None), ([None, 2.0], "0")])
def test_seeds_that_have_diverged_are_named(values, bad):
    members = [
        {"seed": seed, "metrics": {"distance": value, "nll": 1.0}}
        for seed, value in enumerate(values)
    ]
    said = check_convergence({"members": members})
    assert said == (None if bad is None else f"Seeds that have diverged: {bad}.")


def test_a_training_in_which_all_diverge_is_an_error():
    members = [{"seed": 0, "metrics": {"distance": float("nan"), "nll": 1.0}}]
    with pytest.raises(ValueError, match="All seeds have diverged"):
        check_convergence({"members": members})


@pytest.mark.parametrize(("distance", "fine"), [(0.0, True), (5e3, True), (1e5, False)])
def test_a_mean_that_its_type_cannot_resolve_is_flagged(distance, fine):
    mean, factor = jnp.full(2, distance, jnp.float32), jnp.eye(2, dtype=jnp.float32)
    assert bool(filtrax.filters.base.resolved(mean, factor, factor)) is fine
    exact = 1e-7 * factor  # the rounding of a prediction: what is known exactly
    assert bool(filtrax.filters.base.resolved(mean, exact, factor))
