"""The recurrent network that filters are compared with."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax.arrays import Control, Key
from filtrax.beliefs import Gaussian, RecurrentBelief
from filtrax.filters.base import AbstractFilter, Info, all_finite
from filtrax.model import StateSpaceModel
from filtrax.networks import Perceptron
from filtrax.noise import FullNoise, constant_noise
from filtrax.sensors import Measurement
from filtrax.spaces import Space


class RecurrentFilter(AbstractFilter[RecurrentBelief]):
    """LSTM layers and a decoder to mean and covariance (Kloss et al. 2021, section 5.2).

    The network sees the features of a measurement (its value where there are none), the control,
    and on the first step the mean and variances of the prior, the mean as `Space.network_input`
    has it. Unobserved measurements are zeros.
    The decoder's output is the state itself or, with `residual`, what is added to the previous
    mean; its covariance is that of a `FullNoise`.

    **Arguments:**

    - `space`: the model's state space.
    - `input_size`: the number of features, or of observed components where the sensor gives none.
    - `control_size`: the number of entries of a control.
    - `hidden_size`, `num_layers`: of the LSTM.
    - `decoder_sizes`: hidden layers of the decoder.
    - `std`, `floor`: start value of the standard deviations and variance floor of the estimate.
    """

    cells: tuple[eqx.nn.LSTMCell, ...]
    decoder: Perceptron
    noise: FullNoise
    residual: bool = eqx.field(static=True)

    def __init__(
        self,
        space: Space,
        input_size: int,
        *,
        control_size: int = 0,
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
        inputs = input_size + control_size + space.input_size + space.size
        sizes = [inputs] + [hidden_size] * num_layers
        self.cells = tuple(
            _lstm_cell(size, hidden_size, key=k) for size, k in zip(sizes[:-1], keys, strict=True)
        )
        noise = constant_noise(std**2 * jnp.eye(space.size), floor)
        assert isinstance(noise, FullNoise)
        self.noise = eqx.tree_at(
            lambda n: n.head, noise, lambda entries: entries, is_leaf=lambda leaf: leaf is None
        )
        outputs = space.size + noise.bias.size
        self.decoder = Perceptron((hidden_size, *decoder_sizes, outputs), key=decoder_key)
        self.residual = residual

    def init(self, model: StateSpaceModel, prior: Gaussian, *, key: Key) -> RecurrentBelief:
        del key
        space, dtype = model.state_space, prior.mean.dtype
        mean = space.wrap(prior.mean)
        # Standard deviations, like states, are of the order of one in the network's units.
        variances = space.scaled(space.scaled(jnp.diagonal(prior.covariance)))
        zeros = jnp.zeros(self.cells[0].hidden_size, dtype)
        return RecurrentBelief(
            estimate=Gaussian(mean, prior.covariance),
            memory=tuple((zeros, zeros) for _ in self.cells),
            start=space.network_input(mean, variances),
        )

    def step(
        self,
        model: StateSpaceModel,
        belief: RecurrentBelief,
        control: Control,
        measurement: Measurement,
        *,
        key: Key,
    ) -> tuple[RecurrentBelief, Info]:
        del key
        controls = [jnp.ravel(leaf) for leaf in jax.tree.leaves(control)]
        signal = jnp.concatenate([_perceived(model, measurement), *controls, belief.start])
        memory = []
        for cell, previous in zip(self.cells, belief.memory, strict=True):
            hidden, carry = cell(signal, previous)
            memory.append((hidden, carry))
            signal = hidden
        estimate = self._decode(model.state_space, signal, belief.estimate.mean)
        updated = RecurrentBelief(estimate, tuple(memory), jnp.zeros_like(belief.start))
        return updated, Info(finite=all_finite(estimate))

    def _decode(
        self, space: Space, hidden: Float[Array, " h"], previous: Float[Array, " x"]
    ) -> Gaussian:
        output = self.decoder(hidden)
        mean = space.unscaled(output[: space.size])
        if self.residual:
            mean = previous + mean
        return Gaussian(space.wrap(mean), self.noise.covariance(output[space.size :]))


def _perceived(model: StateSpaceModel, measurement: Measurement) -> Float[Array, " inputs"]:
    """What the network sees of a measurement."""
    features = jax.tree.leaves(measurement.features)
    if features:
        signal, seen = jnp.concatenate([jnp.ravel(f) for f in features]), measurement.seen().any()
    else:
        signal, seen = model.observation_space.scaled(measurement.value), measurement.seen()
    return jnp.where(seen, signal, 0.0)


def _lstm_cell(inputs: int, hidden: int, *, key: Key) -> eqx.nn.LSTMCell:
    """A cell that remembers at first: the bias of its forget gate is one (Gers et al. 2000)."""
    cell = eqx.nn.LSTMCell(inputs, hidden, key=key)
    bias = jnp.zeros(4 * hidden).at[hidden : 2 * hidden].set(1.0)
    return eqx.tree_at(lambda c: c.bias, cell, bias)
