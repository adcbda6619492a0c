"""The recurrent network that filters are compared with."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from filtrax._types import Inputs, Key
from filtrax.beliefs import Gaussian, RecurrentBelief
from filtrax.filters.base import AbstractFilter, Info, all_finite
from filtrax.linalg import imprecise, root_sum
from filtrax.networks import Features, Perceptron
from filtrax.noise import FullNoise, constant_noise
from filtrax.sensors import Measurement
from filtrax.state_space import StateSpaceModel


class RecurrentFilter(AbstractFilter[RecurrentBelief]):
    """LSTM layers and a decoder to mean and covariance (Kloss et al. 2021, section 5.2).

    The network sees the features of a measurement (its value where there are none), the inputs,
    and on the first step the mean and variances of the prior. Unobserved measurements are zeros.
    The decoder's output is the state itself or, with `residual`, what is added to the previous
    mean; its covariance is that of a `FullNoise`.

    **Arguments:**

    - `state`: what the network sees of a state, and the units in which it answers.
    - `feature_size`: the number of features, or of observed components where the sensor gives none.
    - `observation`: what the network sees of an observation, where the sensor gives no features.
    - `input_size`: the number of entries of the inputs.
    - `hidden_size`, `num_layers`: of the LSTM.
    - `decoder_sizes`: hidden layers of the decoder.
    - `std`, `floor`: start value of the standard deviations and variance floor of the estimate.
    """

    cells: tuple[eqx.nn.LSTMCell, ...]
    decoder: Perceptron
    noise: FullNoise
    state: Features
    observation: Features
    residual: bool = eqx.field(static=True)

    def __init__(
        self,
        state: Features,
        feature_size: int,
        *,
        observation: Features = Features(),
        input_size: int = 0,
        hidden_size: int = 512,
        num_layers: int = 1,
        decoder_sizes: tuple[int, ...] = (128, 64),
        residual: bool = False,
        std: float = 1.0,
        floor: float = 1e-2,
        key: Key,
    ):
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, got {num_layers}.")
        decoder_key, *keys = jr.split(key, num_layers + 1)
        size = len(np.atleast_1d(state.scale))
        first = feature_size + input_size + state.size + size
        inputs = [first] + [hidden_size] * (num_layers - 1)
        self.cells = tuple(
            _lstm_cell(n, hidden_size, key=k) for n, k in zip(inputs, keys, strict=True)
        )
        self.noise = _noise_of_outputs(std**2 * jnp.eye(size), floor)
        outputs = size + self.noise.bias.size
        self.decoder = Perceptron((hidden_size, *decoder_sizes, outputs), key=decoder_key)
        self.state, self.observation, self.residual = state, observation, residual

    def init(
        self, model: StateSpaceModel, prior: Gaussian, *, key: Key | None = None
    ) -> RecurrentBelief:
        del key
        mean = model.state_space.wrap(prior.mean)
        # Standard deviations, like states, are of the order of one in the network's units.
        variances = self.state.scaled(self.state.scaled(jnp.diagonal(prior.covariance)))
        zeros = jnp.zeros(self.cells[0].hidden_size, prior.mean.dtype)
        return RecurrentBelief(
            estimate=Gaussian.of_factor(mean, prior.compact().factor),
            memory=tuple((zeros, zeros) for _ in self.cells),
            start=self.state(mean, variances),
        )

    @imprecise
    def step(
        self,
        model: StateSpaceModel,
        belief: RecurrentBelief,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> tuple[RecurrentBelief, Info]:
        del key
        known = [jnp.ravel(leaf) for leaf in jax.tree.leaves(inputs)]
        signal = jnp.concatenate([self._perceived(measurement), *known, belief.start])
        memory = []
        for cell, previous in zip(self.cells, belief.memory, strict=True):
            hidden, carry = cell(signal, previous)
            memory.append((hidden, carry))
            signal = hidden
        estimate = self._decode(model, signal, belief.estimate.mean)
        updated = RecurrentBelief(estimate, tuple(memory), jnp.zeros_like(belief.start))
        return updated, Info(finite=all_finite(estimate))

    def _decode(
        self, model: StateSpaceModel, hidden: Float[Array, " h"], previous: Float[Array, " x"]
    ) -> Gaussian:
        output, size = self.decoder(hidden), previous.size
        mean = self.state.unscaled(output[:size])
        if self.residual:
            mean = previous + mean
        return Gaussian.of_factor(model.state_space.wrap(mean), root_sum(self.noise(output[size:])))

    def _perceived(self, measurement: Measurement) -> Float[Array, " features"]:
        """The part of a measurement that the network sees."""
        features = jax.tree.leaves(measurement.features)
        if features:
            signal = jnp.concatenate([jnp.ravel(feature) for feature in features])
            return jnp.where(measurement.seen().any(), signal, 0.0)
        return jnp.where(measurement.seen(), self.observation.scaled(measurement.value), 0.0)


def _noise_of_outputs(start: Float[Array, "x x"], floor: float) -> FullNoise:
    """Noise whose features are the entries of its triangle."""
    noise = constant_noise(start, floor)
    assert isinstance(noise, FullNoise)
    return dataclasses.replace(noise, head=_unchanged)


def _unchanged(entries: Float[Array, " n"]) -> Float[Array, " n"]:
    """The head of noise that is told its entries: one function, so that filters share programs."""
    return entries


def _lstm_cell(inputs: int, hidden: int, *, key: Key) -> eqx.nn.LSTMCell:
    """A cell that remembers at first: the bias of its forget gate is one (Gers et al. 2000)."""
    cell = eqx.nn.LSTMCell(inputs, hidden, key=key)
    bias = jnp.zeros(4 * hidden).at[hidden : 2 * hidden].set(1.0)
    return eqx.tree_at(lambda c: c.bias, cell, bias)
