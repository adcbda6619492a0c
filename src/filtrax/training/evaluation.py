"""Running an ensemble of filters over a data set, for every perturbation of the initial state.

An *ensemble* is a filter and a model whose arrays all have a leading axis of members.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PyTree

from filtrax import _hooks, _readers
from filtrax._given import unwrap
from filtrax._readers import AbstractSharedEncoder, reader
from filtrax._types import Keys, Scalar
from filtrax.filters import AbstractFilter, filter_trajectory
from filtrax.filters._run import sense_trajectory
from filtrax.linalg import precise
from filtrax.losses import Loss
from filtrax.sensors import NetworkSensor, PrecomputedFeatures
from filtrax.state_space import StateSpaceModel
from filtrax.training.devices import ONE, Placement
from filtrax.training.objectives import average, mean_loss
from filtrax.training.protocols import (
    AbstractScore,
    Objective,
    Score,
    needs_readings,
    seen_by,
    sees_given,
)
from filtrax.trajectory import Trajectory

SEQUENCES_AT_ONCE = 64
"""Bounds the memory that evaluation takes: that many sequences of images are held at a time.

They are fewer where a sensor or its encoder bounds the images that it reads at a time
(`frames_at_once`).
"""

members = eqx.if_array(0)
"""In `eqx.filter_vmap`: every array has a leading axis of members."""


class Tracking(AbstractScore):
    """Loss and distance of a trajectory, as `tracking` makes it."""

    loss: Loss

    def __call__(self, filt, model, trajectory, key) -> dict[str, Scalar]:
        """The score of one trajectory."""
        beliefs = filter_trajectory(filt, model, trajectory, key=key).beliefs
        space = model.bind(trajectory.context).state_space
        states, labels = trajectory.known_states()

        @precise
        def distance(belief, state, labels):
            difference = space.difference(state, belief.moments(space).mean)
            return jnp.sqrt((jnp.where(labels, difference, 0.0) ** 2).sum())

        return {
            "loss": mean_loss(self.loss, beliefs, trajectory, space),
            "distance": average(jax.vmap(distance)(beliefs, states, labels), labels.any(-1)),
        }


def tracking(loss: Loss) -> Tracking:
    """The mean loss of a trajectory, and the mean distance of its estimates from the truth."""
    return Tracking(loss)


class ObjectiveScore(AbstractScore):
    """The value of an objective at the end of its stage."""

    objective: Objective

    @property
    def needs_readings(self) -> bool:
        return needs_readings(self.objective)

    @property
    def sees_given(self) -> bool:
        return sees_given(self.objective)

    def __call__(self, filt, model, trajectory, key) -> dict[str, Scalar]:
        """The score of one trajectory."""
        progress = jnp.ones((), trajectory.initial.dtype)
        return {"loss": self.objective(filt, model, trajectory, progress, key)}


def evaluate(
    score: Score,
    filt: AbstractFilter,
    model: StateSpaceModel,
    data: Trajectory,
    perturbations: Any,
    keys: Keys,
    *,
    readings: PyTree = None,
    placement: Placement = ONE,
) -> PyTree:
    """The score of every member on every trajectory from every perturbed initial state.

    The sensor runs once for all perturbations, and readings are made once for all members. Its
    encoder is a program of its own (see `encoded`), unless the score is an objective, which may
    need the images.
    Arrays of the score, if it has any, have a leading axis of members, too.
    `readings` replace those of the data, with a leading axis of members. `placement` deals the
    sequences out to several devices.

    **Returns:** the scores, with leading axes (members, perturbations, trajectories).
    """
    if readings is None and not isinstance(score, ObjectiveScore):
        model, readings = encoded(model, data, keys, placement=placement)
    if _takes_turns(model, keys):
        scores = []
        for number in range(len(keys)):
            own = _member((score, filt, model, keys, readings), number)
            own_score, own_filt, own_model, key, features = own
            options = {"readings": features, "placement": placement}
            arguments = (own_score, own_filt, own_model, data, perturbations, key)
            scores.append(evaluate(*arguments, **options))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *scores)
    model = eqx.nn.inference_mode(model)
    if readings is not None:
        readings = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), readings)
    if not isinstance(perturbations, jax.Array):
        perturbations = np.asarray(perturbations)
    inputs = (np.arange(data.initial.shape[0]), data, readings)
    function = lambda chunk, *others: _evaluate(placement.sequences(chunk), *others)  # noqa: E731
    size = sequences_at_once(model, data, keys)
    arguments = (score, filt, model, perturbations, keys, _hooks.accelerated())
    return in_chunks(function, inputs, *arguments, size=size, axis=2)


def _member(ensemble: PyTree, number: int) -> PyTree:
    """One member, with its axis."""
    own = slice(number, number + 1)
    return jax.tree.map(lambda leaf: leaf[own] if eqx.is_array(leaf) else leaf, ensemble)


@eqx.filter_jit
def _evaluate(inputs, score, filt, model, perturbations, keys, accelerate):
    filt, model = seen_by(score, filt, model)

    def of_trajectory(number, trajectory, readings):
        def member(score, filt, model, readings, key):
            sensor_key, key = jr.split(jr.fold_in(key, number))
            own = trajectory
            if readings is not None:
                own = dataclasses.replace(trajectory, readings=readings)
            if len(perturbations) > 1 and needs_readings(score):
                model, own = sense_trajectory(model, own, key=sensor_key)

            def perturbed(perturbation, key):
                initial = own.initial + perturbation.astype(own.initial.dtype)
                return score(filt, model, dataclasses.replace(own, initial=initial), key)

            return jax.vmap(perturbed)(perturbations, jr.split(key, len(perturbations)))

        return eqx.filter_vmap(member, in_axes=members)(score, filt, model, readings, keys)

    with _hooks.acceleration(accelerate):
        return jax.vmap(of_trajectory)(*inputs)


def encode(
    model: StateSpaceModel, data: Trajectory, keys: Keys, *, placement: Placement = ONE
) -> PyTree:
    """The features of all readings, with leading axes (members, trajectories, steps).

    An `AbstractSharedEncoder` sees the whole data set, and gives the same to all members.
    """
    model = unwrap(model)
    encoder = reader(model.sensor)
    if isinstance(encoder, AbstractSharedEncoder):
        shared = lambda leaf: jnp.broadcast_to(leaf, (len(keys), *leaf.shape))  # noqa: E731
        return jax.tree.map(shared, encoder.encode_all(data))
    if _takes_turns(model, keys):
        ensemble = [_member((model, keys), number) for number in range(len(keys))]
        features = [encode(own, data, key, placement=placement) for own, key in ensemble]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *features)
    function = lambda chunk, *others: _encode(placement.sequences(chunk), *others)  # noqa: E731
    size = sequences_at_once(model, data, keys)
    return in_chunks(function, data, eqx.nn.inference_mode(model), keys, size=size, axis=1)


def encoded(
    model: StateSpaceModel, data: Trajectory, keys: Keys, *, placement: Placement = ONE
) -> tuple[StateSpaceModel, PyTree]:
    """The model without its encoder, and the features that the encoder makes of all readings.

    An encoder is the largest part of a program, and the same for all filters: apart from them it is
    compiled once. Without an encoder the result is the model, unchanged, and None.
    """
    if not _can_encode(model, data):
        return model, None
    features = encode(model, data, keys, placement=placement)
    return with_encoder(model, PrecomputedFeatures()), features


@eqx.filter_jit
def _encode(data, model, keys):
    def of_trajectory(trajectory):
        def member(model, key):
            def features(reading, inputs):
                return model.sensor.encoder(reading, inputs, trajectory.context, key=key)

            return jax.vmap(features)(trajectory.readings, trajectory.inputs)

        return eqx.filter_vmap(member, in_axes=members)(model, keys)

    return jax.vmap(of_trajectory)(data)


def members_in_turn(model: StateSpaceModel) -> bool:
    """True if members of an ensemble should be computed one after another, and not at once.

    On a GPU the gradient of several large convolutions at once takes ten times as long as that of
    one after another, and as many times the memory. Encoders declare it (`sequential_members`).
    """
    return reader(model.sensor).sequential_members and jax.default_backend() != "cpu"


def _takes_turns(model: StateSpaceModel, keys: Keys) -> bool:
    return members_in_turn(model) and len(keys) > 1


def sequences_at_once(model: StateSpaceModel, data: Trajectory, keys: Keys) -> int:
    """The number of sequences that all members of an ensemble, with a key each, read in one go."""
    num_steps = jax.tree.leaves(data.readings)[0].shape[1]
    return _readers.sequences_at_once(model.sensor, num_steps * len(keys), SEQUENCES_AT_ONCE)


def in_chunks(
    function: Callable, inputs: PyTree, *arguments: Any, size: int, axis: int = 0
) -> PyTree:
    """`function(inputs, *arguments)` for some sequences at a time, which bounds its memory.

    The first axis of all inputs and of what the function returns counts sequences; in what comes
    out here it is the one numbered `axis`. NumPy's arrays are cut where they are, so that a device
    never has more of them than it works on.
    """
    count = jax.tree.leaves(inputs)[0].shape[0]
    size = min(size, count)
    # A loop of Python, because XLA's convolutions are several times slower inside of its loops
    # on a CPU. The last chunk begins earlier, so that all have the same size.
    firsts = [*range(0, count - size, size), count - size]
    outputs = [function(_chunk(inputs, first, size), *arguments) for first in firsts]
    return _joined(outputs, -count % size, axis)


@functools.partial(jax.jit, static_argnums=(1, 2))  # one program, and not one for every array
def _joined(outputs: Sequence[PyTree], overlap: int, axis: int) -> PyTree:
    """Outputs for all sequences, of which some at the beginning of the last chunk come twice."""

    def join(*leaves: Array) -> Array:
        joined = jnp.concatenate([*leaves[:-1], leaves[-1][overlap:]])
        return jnp.moveaxis(joined, 0, axis)

    return jax.tree.map(join, *outputs)


def _chunk(inputs: PyTree, first: int, size: int) -> PyTree:
    on_host, on_device = eqx.partition(inputs, lambda leaf: isinstance(leaf, np.ndarray))
    on_host = jax.tree.map(lambda leaf: leaf[first : first + size], on_host)
    return eqx.combine(on_host, _cut(on_device, np.asarray(first), size))


@functools.partial(jax.jit, static_argnames="size")  # one program, and not one for every array
def _cut(arrays: PyTree, first: Int[Array, ""], size: int) -> PyTree:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), arrays)


def with_encoder(model: StateSpaceModel, encoder: Any) -> StateSpaceModel:
    """The model with another encoder; `PrecomputedFeatures()` is the one for cached features."""
    sensor = model.sensor
    assert isinstance(sensor, NetworkSensor)
    return dataclasses.replace(model, sensor=dataclasses.replace(sensor, encoder=encoder))


def without_images(data: Trajectory, model: StateSpaceModel) -> Trajectory:
    """Data without what only the sensor reads, for where its features are kept or not needed.

    It drops the readings, and the entries of the context that the encoder names as its
    `own_context`: images take many times the memory of features.
    """
    context, own = data.context, reader(model.sensor).own_context
    if own:
        context = {name: value for name, value in context.items() if name not in own}
    shape = jax.tree.leaves(data.readings)[0].shape[:2]
    return dataclasses.replace(data, readings=np.zeros(shape, bool), context=context)


def has_frozen_encoder(model: StateSpaceModel, data: Trajectory, trained: Any) -> bool:
    """True if features can be computed once; `trained` is the model's mask of trained arrays."""
    return _can_encode(model, data) and not any(jax.tree.leaves(trained.sensor.encoder))


def _can_encode(model: StateSpaceModel, data: Trajectory) -> bool:
    sensor = model.sensor
    if not isinstance(sensor, NetworkSensor) or isinstance(sensor.encoder, PrecomputedFeatures):
        return False
    # A masked reading is zeroed before the encoder, its features would be zeroed after it.
    return data.observed is None
