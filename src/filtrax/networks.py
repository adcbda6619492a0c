"""Networks without any knowledge of filtering."""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax.arrays import Key


class Perceptron(eqx.Module):
    """Fully connected layers with ReLU between them and a linear output.

    Kernels start Glorot-normal and biases at 1e-3, as in the paper. `final_std` sets the
    standard deviation of the last kernel instead (and its bias to zero), so that a head can
    start at, or close to, zero output.
    """

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, sizes: Sequence[int], *, final_std: float | None = None, key: Key):
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(
                f"`sizes` must hold the input size, hidden sizes and output size, all positive: "
                f"got {tuple(sizes)}."
            )
        self.layers = _layers(tuple(sizes), final_std, key)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        for layer in self.layers[:-1]:
            inputs = jax.nn.relu(layer(inputs))
        return self.layers[-1](inputs)


@eqx.filter_jit  # compiled as one program, because a network is made of many small draws
def _layers(sizes: tuple[int, ...], final_std: float | None, key: Key) -> tuple[eqx.nn.Linear, ...]:
    pairs = list(itertools.pairwise(sizes))
    starts = [(jax.nn.initializers.glorot_normal(), 1e-3)] * len(pairs)
    if final_std is not None:
        starts[-1] = (jax.nn.initializers.normal(final_std), 0.0)
    layers = []
    for (inputs, outputs), (kernel, bias), k in zip(
        pairs, starts, jr.split(key, len(pairs)), strict=True
    ):
        layer = eqx.nn.Linear(inputs, outputs, key=k)
        start = (kernel(k, layer.weight.shape), jnp.full(outputs, bias))
        layers.append(eqx.tree_at(lambda linear: (linear.weight, linear.bias), layer, start))
    return tuple(layers)
