"""Switching processes: their parts, what shares them, and what is refused."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax import IMMFilter, LearnedTransitions, Mode, SwitchingProcess, Transitions
from filtrax.filters import AbstractBayesFilter, Info
from filtrax.networks import Perceptron
from filtrax.switching import switching

LINE = filtrax.Space(("x",))
MATRIX = np.asarray([[0.9, 0.1], [0.4, 0.6]])
STATE = jnp.zeros(1)


class Scaled(eqx.Module):
    """A process that counts how often it is traced, and may depend on the context."""

    factor: jax.Array
    calls: list = eqx.field(static=True)

    def __call__(self, state, inputs):
        self.calls.append(None)
        return self.factor * state

    def bind(self, context):
        return dataclasses.replace(self, factor=self.factor * context)


def model_with(modes, transitions=None, process=lambda state, inputs: 0.5 * state, **parts):
    matrix = np.full((len(modes),) * 2, 1 / len(modes))
    given = Transitions(matrix) if transitions is None else transitions
    noise = filtrax.constant_noise([1.0])
    defaults = {
        "process_noise": noise,
        "observe": lambda state, inputs: state,
        "sensor": filtrax.DirectSensor(noise),
        "state_space": LINE,
        "observation_space": LINE,
    }
    whole = SwitchingProcess(process, tuple(modes), given)
    return filtrax.StateSpaceModel(whole, **(defaults | parts))


PRIOR = filtrax.Gaussian([1.0], [[1.0]])


def run(filt, model, **options):
    readings = jnp.ones((3, 1))
    return filtrax.run(filt, model, PRIOR, readings, key=jr.key(0), **options).beliefs


def test_what_knows_no_modes_sees_the_model_without_them():
    plain = model_with([Mode()])
    plain = dataclasses.replace(plain, process=plain.process.process)
    other = Mode(lambda x, u: x + 100.0, filtrax.constant_noise([9.0]), lambda x, u: x - 50.0)
    ekf = filtrax.ExtendedKalmanFilter()
    expected, found = (run(ekf, model) for model in (plain, model_with([other, Mode()])))
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.covariance, expected.covariance)


def test_a_mode_takes_from_the_model_what_it_does_not_have():
    noise, far = filtrax.constant_noise([9.0]), lambda x, u: x - 50.0
    model = model_with([Mode(), Mode(process_noise=noise, observe=far)])
    first, second = (filtrax.in_mode(model, mode) for mode in switching(model).modes)
    assert first.process is second.process is model.process.process
    assert (first.process_noise, first.observe) == (model.process_noise, model.observe)
    assert second.process_noise is noise
    assert second.observe is far
    assert filtrax.in_mode(first, Mode()) == first  # a model without modes has one


def test_the_noise_of_a_mode_sees_features_or_else_the_value():
    class Proportional(filtrax.noise.AbstractNoise):
        @property
        def size(self):
            return 1

        def __call__(self, *features):
            return jnp.diag(*features)

    value, features = jnp.asarray([3.0]), jnp.asarray([5.0])
    plain = filtrax.Measurement(value, jnp.eye(1))
    rich = filtrax.Measurement(value, jnp.eye(1), features=features)
    stacked = filtrax.Measurement(value, jnp.eye(1), features=(None, None))
    mode = Mode(sensor_noise=Proportional())
    for measurement, expected in ((plain, 9.0), (rich, 25.0), (stacked, 9.0)):
        assert mode.measured(measurement).covariance == expected
        assert Mode().measured(measurement) is measurement


def test_modes_that_differ_in_numbers_are_one_program_and_the_sensor_runs_once():
    """Rejects a program that grows with the number of modes, and readings that are sensed anew."""
    calls, sensed = [], []

    def sensor(reading, inputs, context, *, key):
        sensed.append(reading.shape)
        return filtrax.Measurement(reading, jnp.eye(1))

    counts = []
    for count in (2, 4):
        calls.clear()
        sensed.clear()
        factors = jnp.linspace(0.1, 0.9, count)
        modes = [Mode(Scaled(factor, calls)) for factor in factors]
        model = model_with(modes, sensor=sensor)
        jax.eval_shape(lambda model=model: run(IMMFilter(), model))
        counts.append((len(calls), sensed.copy()))
    assert counts[0] == counts[1]
    assert counts[0][1] == [(1,)]


def test_every_part_is_bound_to_the_context():
    class Head(eqx.Module):
        logit: jax.Array

        def __call__(self, state, inputs):
            return jnp.stack([self.logit, 0.0 * self.logit, 0.0 * self.logit, self.logit])

        def bind(self, context):
            return Head(self.logit * context)

    calls = []
    modes = [Mode(), Mode(process=Scaled(jnp.asarray(0.3), calls))]
    chances = LearnedTransitions(np.full((2, 2), 0.5), head=Head(jnp.asarray(1.0)))
    model = model_with(modes, chances, Scaled(jnp.asarray(0.5), calls))
    process = model.bind(jnp.asarray(2.0)).process
    assert process.process.factor == 1.0
    assert process.modes[1].process.factor == 0.6
    expected = np.exp(2.0) / (1 + np.exp(2.0))
    np.testing.assert_allclose(jnp.exp(process.transitions(STATE, None))[0, 0], expected)
    assert model.bind(None).process is model.process


def test_learned_transitions_start_as_told_and_stay_probabilities():
    network = Perceptron((2, 4, 4), final_std=0.0, key=jr.key(0))
    head = filtrax.TransitionHead(network, filtrax.Features(LINE))
    for learned in (LearnedTransitions(MATRIX), LearnedTransitions(MATRIX, head=head)):
        arguments = (jnp.ones(1), jnp.ones(1))
        np.testing.assert_allclose(jnp.exp(learned(*arguments)), MATRIX, rtol=1e-12)
        moved = jax.tree.map(
            lambda leaf: leaf + 5 * jr.normal(jr.key(1), leaf.shape),
            eqx.filter(learned, eqx.is_array),
        )
        moved = eqx.combine(moved, learned)
        rows = jnp.exp(moved(*arguments))
        np.testing.assert_allclose(rows.sum(1), 1, rtol=1e-12)
        assert jnp.abs(rows - MATRIX).max() > 0.1


def test_transitions_depend_on_the_state_of_the_mode_they_start_from():
    """Rows at one mean for all modes would give both rows the same chances here."""

    class Head(eqx.Module):
        def __call__(self, state, inputs):
            return jnp.stack([0.0 * state[0], state[0], 0.0 * state[0], state[0]])

    learned = LearnedTransitions(np.full((2, 2), 0.5), head=Head())
    model = model_with([Mode(), Mode()], learned)
    means = np.asarray([-2.0, 1.0])
    components = filtrax.Gaussian(means[:, None], np.ones((2, 1, 1)))
    belief = filtrax.GaussianMixture(components, jnp.log(jnp.asarray([0.3, 0.7])))
    predicted = IMMFilter().predict(model, belief, None)
    expected = [0.3, 0.7] @ (1 / (1 + np.exp(-means)))
    np.testing.assert_allclose(jnp.exp(predicted.log_weights)[1], expected, rtol=1e-12)


def test_given_transitions_do_not_train_and_may_have_zeros():
    given = Transitions(np.asarray([[1.0, 0.0], [0.4, 0.6]]))
    chances = jax.jit(lambda given: jnp.exp(given(STATE, None)))
    np.testing.assert_allclose(chances(given), given.matrix, rtol=1e-12)
    gradient = jax.grad(lambda given: chances(given)[1, 0])(given)
    np.testing.assert_array_equal(gradient.matrix, 0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Transitions([[0.5, 0.6], [0.5, 0.5]]), r"`matrix`.*sum to one.*1\.1"),
        (lambda: Transitions([[1.5, -0.5], [0.5, 0.5]]), r"`matrix`.*probabilities"),
        (lambda: Transitions([[0.5, 0.5]]), r"`matrix`.*square.*\(1, 2\)"),
        (lambda: LearnedTransitions(np.eye(2)), r"`start`.*positive.*`Transitions`"),
        (lambda: model_with([Mode()], Transitions(MATRIX)), r"`modes`.*1 modes for 2 rows"),
        (
            lambda: SwitchingProcess(max, (Mode(),) * 2, Transitions(MATRIX), (0.5, 0.6)),
            r"`initial`.*2 probabilities.*0\.6",
        ),
        (
            lambda: LearnedTransitions(MATRIX, head=lambda x, u: x)(STATE, None),
            r"`head`.*4 numbers.*\(1,\)",
        ),
        (
            lambda: run(IMMFilter(), model_with([Mode(), Mode(lambda x, u: x[:0])])),
            r"process\(state, inputs\).*\(1,\).*\(0,\)",
        ),
    ],
)
def test_what_is_refused(build, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        build()


class Silent(AbstractBayesFilter):
    """A filter that reports no likelihood."""

    def init(self, model, prior, *, key=None):
        return prior

    def predict(self, model, belief, inputs, *, key=None):
        return belief

    def update(self, model, predicted, measurement, inputs, *, key=None):
        return predicted, Info(jnp.asarray(True))


def test_inner_filters_must_have_a_gaussian_belief_and_a_likelihood():
    model = model_with([Mode()])
    with pytest.raises(TypeError, match=r"`Gaussian`.*ParticleFilter.*Particles"):
        IMMFilter(filtrax.ParticleFilter(5)).init(model, PRIOR, key=jr.key(0))
    with pytest.raises(TypeError, match=r"likelihood.*Silent"):
        run(IMMFilter(Silent()), model)
