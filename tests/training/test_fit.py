"""What `fit` promises besides a lower loss."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import filtrax
from filtrax import Features
from filtrax.networks import Perceptron
from filtrax.training import DivergenceError, filtering
from filtrax.training.parts import warn_of_hidden_parameters
from filtrax.trajectory import perturb, random_subsequence, stack
from systems import POSE, beacon_model, beacon_trajectory

DATA = stack([beacon_trajectory(5, seed) for seed in range(6)])
ADAM = optax.adam(1e-2)
EKF = filtrax.ExtendedKalmanFilter()


def fit(filt=EKF, model=None, data=DATA, **arguments):
    defaults = {
        "loss": filtrax.losses.nll,
        "optimizer": ADAM,
        "num_steps": 4,
        "batch_size": 3,
        "key": jr.key(0),
    }
    if "objective" in arguments:
        del defaults["loss"]
    return filtrax.fit(
        filt, beacon_model() if model is None else model, data, **(defaults | arguments)
    )


def arrays(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf)]


def test_only_the_named_parts_change_and_the_rest_is_kept_bit_for_bit():
    model = beacon_model()
    _, trained, _ = fit(model=model, train=("model.sensor.noise",))
    assert (trained.sensor.noise.bias != model.sensor.noise.bias).all()
    np.testing.assert_array_equal(trained.process_noise.bias, model.process_noise.bias)


def test_parts_of_the_filter_train_like_parts_of_the_model():
    ukf = filtrax.UnscentedKalmanFilter(filtrax.LearnedScaling(3))
    model = beacon_model()
    trained, same, _ = fit(ukf, model, train=("filter.scaling",))
    assert trained.scaling.log_spread != ukf.scaling.log_spread
    for before, after in zip(arrays(model), arrays(same), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_learned_kernel_moves_where_the_mixture_is_too_narrow():
    """Rejects a kernel that the belief carries but no gradient reaches."""
    narrow = filtrax.constant_noise([0.02, 0.02, 0.02])
    filt = filtrax.ParticleFilter(num_particles=20, kernel=narrow)
    trained, _, _ = fit(filt, loss=filtrax.losses.mixture_nll, train=("filter.kernel",))
    assert (jnp.abs(trained.kernel.bias) > 0.03).all()


def test_the_gradient_that_the_optimizer_sees_is_clipped_to_the_norm():
    """D6: a peer's clipping divides by the norm and forgets to multiply by the threshold."""
    data = eqx.tree_at(lambda t: t.readings, DATA, 20 * DATA.readings)
    _, _, free = fit(data=data)
    assert (free.gradient_norm > 10).all()
    np.testing.assert_array_equal(free.gradient_norm, free.clipped_norm)
    _, _, clipped = fit(data=data, clip_norm=10.0)
    np.testing.assert_allclose(clipped.clipped_norm, 10.0, rtol=1e-12)
    assert (clipped.gradient_norm > 10).all()
    _, _, loose = fit(data=data, clip_norm=1e9)
    np.testing.assert_array_equal(loose.gradient_norm, loose.clipped_norm)
    # The optimizer really gets the clipped gradient: plain descent moves by rate times norm.
    model = beacon_model()
    _, moved, _ = fit(
        model=model, data=data, clip_norm=10.0, optimizer=optax.sgd(1e-3), num_steps=1
    )
    steps = [a - b for a, b in zip(arrays(moved), arrays(model), strict=True)]
    assert np.sqrt(sum((step**2).sum() for step in steps)) == pytest.approx(1e-2)


def test_the_same_key_gives_the_same_numbers_and_another_key_other_ones():
    first, second = fit()[2].loss, fit()[2].loss
    np.testing.assert_array_equal(first, second)
    assert (fit(key=jr.key(1))[2].loss != first).any()


def test_each_trajectory_is_used_once_before_any_is_used_again():
    """Rejects batches drawn with replacement."""

    def objective(filt, model, trajectory, progress, key):
        del filt, progress, key
        # The loss tells which trajectory was drawn; two batches of three make a pass.
        return trajectory.context + 0.0 * model.sensor.noise.bias.sum()

    marked = eqx.tree_at(
        lambda t: t.context, DATA, jnp.asarray(10.0 ** np.arange(6)), is_leaf=lambda x: x is None
    )
    _, _, history = fit(data=marked, objective=objective)
    for drawn in history.loss.reshape(2, 2):
        assert 3 * drawn.sum() == pytest.approx(111111)


def test_progress_runs_from_zero_to_one_and_is_told_to_the_callback():
    def objective(filt, model, trajectory, progress, key):
        del filt, trajectory, key
        return progress + 0.0 * model.sensor.noise.bias.sum()

    told = []
    _, _, history = fit(objective=objective, num_steps=10, callback=told.append, callback_every=4)
    np.testing.assert_allclose(history.loss, np.arange(10) / 10)
    assert [(p.step, p.num_steps) for p in told] == [(4, 10), (8, 10), (10, 10)]
    assert told[-1].loss == pytest.approx(0.85)


def test_augmentation_changes_what_is_trained_on():
    def augment(trajectory, key):
        first, second = jr.split(key)
        return perturb(random_subsequence(trajectory, 3, key=first), key=second)

    _, _, plain = fit()
    _, _, augmented = fit(augment=augment)
    assert (augmented.loss != plain.loss).all()
    assert np.isfinite(augmented.loss).all()


class Dropping(eqx.Module):
    """A sensor with dropout on its reading."""

    dropout: eqx.nn.Dropout
    noise: filtrax.noise.AbstractNoise

    def __call__(self, reading, inputs, context, *, key):
        del inputs, context
        return filtrax.Measurement(self.dropout(reading, key=key), self.noise.covariance())


def test_dropout_is_on_in_training_and_off_in_the_result():
    sensor = Dropping(eqx.nn.Dropout(0.5), filtrax.constant_noise([0.2, 0.1]))
    model = eqx.tree_at(lambda m: m.sensor, beacon_model(), sensor)
    off = eqx.nn.inference_mode(model)
    _, trained, history = fit(model=off)
    assert trained.sensor.dropout.inference
    _, _, certain = fit(model=eqx.tree_at(lambda m: m.sensor.dropout, model, eqx.nn.Dropout(0.0)))
    assert (history.loss != certain.loss).all()


def test_divergence_is_told_and_the_last_good_parameters_are_kept():
    """Rejects a NaN that is skipped in silence, and one that reaches the parameters."""

    def objective(filt, model, trajectory, progress, key):
        del filt, trajectory, key
        return (model.sensor.noise.bias**2).sum() * jnp.where(progress < 0.5, 1.0, jnp.nan)

    with pytest.raises(DivergenceError, match="step 5") as caught:
        fit(objective=objective, num_steps=10)
    assert caught.value.step == 5
    assert jnp.isfinite(caught.value.model.sensor.noise.bias).all()
    _, healthy, _ = fit(
        objective=lambda f, model, t, p, k: (model.sensor.noise.bias**2).sum(), num_steps=5
    )
    np.testing.assert_array_equal(caught.value.model.sensor.noise.bias, healthy.sensor.noise.bias)


VALIDATION = stack([beacon_trajectory(5, seed) for seed in (20, 21)])


def back_and_forth(rate):
    """Descent for four steps, and ascent from then on."""
    return optax.sgd(lambda count: jnp.where(count < 4, rate, -rate))


def test_the_best_state_by_validation_is_what_comes_out():
    # Rejects the last state, a choice by the training loss, and validation that changes training.
    told = []
    options = {"optimizer": back_and_forth(1e-4), "callback_every": 2, "callback": told.append}
    _, best, history = fit(validation=DATA, num_steps=8, **options)
    assert history.best_step == 4
    assert history.validation.shape == (5,)
    assert history.validation.argmin() == 2
    assert [p.validation for p in told] == pytest.approx(list(history.validation[1:]))
    _, expected, alone = fit(num_steps=4, **options)
    assert alone.best_step == 4
    assert alone.validation.size == 0
    np.testing.assert_array_equal(history.loss[:4], alone.loss)
    for ours, theirs in zip(arrays(best), arrays(expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    objective = filtering(filtrax.losses.nll)
    losses = [
        objective(EKF, best, jax.tree.map(lambda leaf, i=i: leaf[i], DATA), 1.0, None)
        for i in range(6)
    ]
    assert history.validation.min() == pytest.approx(np.mean(losses))


class Fragile(eqx.Module):
    """A loss that is not a number in a part of the training."""

    begin: float
    end: float

    def __call__(self, filt, model, trajectory, progress, key):
        del filt, trajectory, key
        total = (model.sensor.noise.bias**2).sum()
        return total * jnp.where((progress >= self.begin) & (progress < self.end), jnp.nan, 1.0)


def test_with_validation_a_state_that_diverges_goes_back_to_the_best_and_on(caplog):
    options = {"validation": VALIDATION, "num_steps": 10, "callback_every": 2}
    with caplog.at_level("INFO", "filtrax"):
        _, model, history = fit(objective=Fragile(0.4, 0.6), **options)
    assert "before step 6 and goes on from its best state" in caplog.text
    assert np.isnan(history.loss[4])
    assert np.isfinite(history.loss[6:]).all()
    assert history.best_step == 10
    # The step after the rollback begins where the best state was.
    assert history.loss[6] == pytest.approx(history.validation[2])
    assert jnp.isfinite(model.sensor.noise.bias).all()
    with pytest.raises(DivergenceError, match="step 4"):
        fit(objective=Fragile(0.4, 2.0), **options | {"validation": None})
    with pytest.raises(DivergenceError, match="step 0"):
        fit(objective=Fragile(0.0, 2.0), **options)


def test_given_values_are_outside_of_the_optimizer():
    """Rejects moments for given values, which cost memory, and weight decay that moves them."""
    model = beacon_model()
    fixed = filtrax.given(model.sensor.noise.bias)
    model = eqx.tree_at(lambda m: m.sensor.noise.bias, model, fixed)
    seen = []

    def remember(parameters):
        seen.append(jax.tree.leaves(parameters))
        return optax.EmptyState()

    spy = optax.GradientTransformation(remember, lambda updates, state, _: (updates, state))
    decay = optax.adamw(1e-2, weight_decay=0.9)
    _, trained, _ = fit(model=model, optimizer=optax.chain(spy, decay))
    np.testing.assert_array_equal(trained.sensor.noise.bias.value, fixed.value)
    assert (trained.process_noise.bias != model.process_noise.bias).all()
    assert [leaf.shape[-1:] for leaf in seen[0]] == [model.process_noise.bias.shape]


def test_a_function_that_hides_parameters_is_warned_of():
    """A network in a closure is invisible: without a warning it would silently stay untrained."""
    network = Perceptron((3, 4, 3), key=jr.key(0))
    model = eqx.tree_at(
        lambda m: m.process, beacon_model(), lambda state, inputs: state + network(state)
    )
    with pytest.warns(UserWarning, match="model.process .* Perceptron"):
        warn_of_hidden_parameters(EKF, model)
    process = filtrax.ResidualProcess(Perceptron((5, 4, 3), key=jr.key(0)), Features(POSE))
    visible = eqx.tree_at(lambda m: m.process, model, process)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_hidden_parameters(EKF, visible)


@pytest.mark.long
def test_a_learned_process_improves_on_data_it_has_not_seen():
    process = filtrax.ResidualProcess(
        Perceptron((5, 16, 3), final_std=0.0, key=jr.key(0)), Features(POSE)
    )
    model = eqx.tree_at(lambda m: m.process, beacon_model(), process)
    train = stack([beacon_trajectory(5, seed) for seed in range(20)])
    test = beacon_trajectory(5, 99)
    _, trained, _ = fit(model=model, data=train, num_steps=150, batch_size=20)

    def distance(model):
        beliefs = filtrax.run(EKF, model, test.prior, test.readings, inputs=test.inputs).beliefs
        return filtrax.metrics.mean_distance(beliefs, test.states, POSE)

    assert distance(trained) < 0.8 * distance(model)
