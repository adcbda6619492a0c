"""Names in `train=`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import filtrax
from filtrax.networks import Perceptron
from filtrax.training.parts import trainable, warn_of_hidden_parameters


@pytest.fixture(scope="module")
def filt():
    return filtrax.ParticleFilter(5, kernel=filtrax.constant_noise([1.0, 1.0]))


@pytest.fixture(scope="module")
def model():
    one = filtrax.DirectSensor(filtrax.constant_noise([1.0]))
    space = filtrax.Space(("x", "y"))
    features = filtrax.Features(space, scale=3.0)
    return filtrax.StateSpaceModel(
        state_space=space,
        observation_space=filtrax.Space(("y", "z")),
        process=filtrax.ResidualProcess(Perceptron((2, 3, 2), key=jax.random.key(0)), features),
        process_noise=filtrax.constant_noise(jnp.eye(2)),
        observe=lambda state, inputs: state,
        sensor=filtrax.stack_sensors(one, one),
    )


PROCESS = {
    "model.process.network.layers[0].weight",
    "model.process.network.layers[0].bias",
    "model.process.network.layers[1].weight",
    "model.process.network.layers[1].bias",
}
SENSORS = {f"model.sensor.sensors[{i}].noise.bias" for i in (0, 1)}
MODEL = PROCESS | SENSORS | {"model.process_noise.bias"}
FILTER = {"filter.kernel.bias"}


def chosen(filt, model, train):
    paths, _ = jax.tree_util.tree_flatten_with_path(trainable(filt, model, train))
    roots = ("filter", "model")
    return {
        roots[path[0].idx] + jax.tree_util.keystr(path[1:])
        for path, is_chosen in paths
        if is_chosen
    }


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        (("model",), MODEL),
        (("filter",), FILTER),
        (("model", "filter"), MODEL | FILTER),
        (("model.process",), PROCESS),
        (("model.process_noise",), {"model.process_noise.bias"}),
        (("model.process_noise.bias",), {"model.process_noise.bias"}),
        (("model.sensor",), SENSORS),
        (("model.sensor.sensors.1.noise",), {"model.sensor.sensors[1].noise.bias"}),
        (("model.process.network.layers.0.bias",), {"model.process.network.layers[0].bias"}),
        (("model.process", "model.process.network.layers.0"), PROCESS),
        (["filter.kernel", "model.sensor"], FILTER | SENSORS),
    ],
)
def test_names_choose_their_arrays_and_no_others(train, expected, filt, model):
    # Rejects names that match by prefix ("model.process" is not "model.process_noise"), and
    # Python numbers like scales and floors that would be trained.
    assert chosen(filt, model, train) == expected


def test_the_mask_parts_filter_and_model_and_nothing_is_lost(filt, model):
    parameters, rest = eqx.partition((filt, model), trainable(filt, model, ("model",)))
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(parameters))
    assert eqx.tree_equal(eqx.combine(parameters, rest), (filt, model))


def test_a_period_that_is_an_array_is_not_trained(filt, model):
    bound = eqx.tree_at(lambda m: m.state_space, model, filtrax.Space(("x", "y"), angles=("y",)))
    bound = eqx.tree_at(lambda m: m.state_space.periods[1], bound, jnp.asarray(6.0))
    assert not any("period" in name for name in chosen(filt, bound, ("model",)))


def test_given_transitions_of_modes_are_not_trained_and_learned_ones_are(filt, model):
    modes = (filtrax.Mode(), filtrax.Mode(process_noise=filtrax.constant_noise([1.0, 1.0])))
    for transitions, logits in (
        (filtrax.Transitions([[0.9, 0.1], [0.2, 0.8]]), set()),
        (
            filtrax.LearnedTransitions([[0.9, 0.1], [0.2, 0.8]]),
            {"model.process.transitions.logits"},
        ),
    ):
        process = filtrax.SwitchingProcess(lambda x, u: x, modes, transitions)
        switching = eqx.tree_at(lambda m: m.process, model, process)
        expected = logits | {"model.process.modes[1].process_noise.bias"}
        assert chosen(filt, switching, ("model.process",)) == expected


def test_a_function_that_hides_a_network_is_named(filt, model):
    # Its parameters would stay as they are without anybody noticing.
    network = Perceptron((2, 2), key=jax.random.key(0))
    hiding = eqx.tree_at(lambda m: m.observe, model, lambda state, inputs: network(state))
    with pytest.warns(UserWarning, match=r"model\.observe.*Perceptron.*not be trained"):
        warn_of_hidden_parameters(filt, hiding)
    warn_of_hidden_parameters(filt, model)


def test_a_filter_without_parameters_may_be_named_next_to_a_model(model):
    ekf = filtrax.ExtendedKalmanFilter()
    assert chosen(ekf, model, ("model", "filter")) == MODEL


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (("modle",), r"'modle'.*root must exist.*Did you mean 'model'\?"),
        (("model.proces",), r"'model.proces'.*Did you mean 'process'\?"),
        (("model.sensor.noise",), r"'model.sensor.noise', whose parts must exist"),
        (("model.sensor.sensors.2",), r"got \['2'\], but there are only \['0', '1'\]"),
        (("model.process_noise.bias.x",), "whose parts must exist"),
        (("model.observe",), "'model.observe', which has no parameters to train"),
        (("model.state_space",), "'model.state_space', which has no parameters to train"),
        (("filter.num_particles",), "which has no parameters to train"),
        ((), "`train` must name at least one part"),
        ("model", "`train` must be a sequence of names, got the string 'model'"),
    ],
)
def test_a_name_that_means_nothing_raises(train, message, filt, model):
    with pytest.raises(ValueError, match=message):
        trainable(filt, model, train)


def test_a_part_that_is_none_and_a_filter_alone_without_parameters_raise(model):
    with pytest.raises(ValueError, match=r"'filter\.kernel', which has no parameters"):
        trainable(filtrax.ParticleFilter(5), model, ("filter.kernel",))
    with pytest.raises(ValueError, match="have no parameters to train"):
        trainable(filtrax.ExtendedKalmanFilter(), model, ("filter",))
