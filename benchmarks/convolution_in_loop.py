"""The gradient of a small convolutional network, alone and inside of a compiled loop.

    python benchmarks/convolution_in_loop.py

Prints the median time of one gradient step in both cases. `Training.steps_per_call` rests on it.
"""

import statistics
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from filtrax.networks import ConvolutionalNetwork

IMAGES, SIZE, STEPS, REPEATS = 80, 60, 10, 5


def main() -> None:
    """Times both."""
    network = ConvolutionalNetwork(
        (SIZE, SIZE, 3), channels=(4, 8), kernel_size=9, stride=2, sizes=(16, 32), key=jr.key(0)
    )
    parameters, static = eqx.partition(network, eqx.is_array)
    images = jr.uniform(jr.key(1), (IMAGES, SIZE, SIZE, 3))

    def step(parameters, images):
        def loss(parameters):
            return (jax.vmap(eqx.combine(parameters, static))(images) ** 2).sum()

        gradient = jax.grad(loss)(parameters)
        return jax.tree.map(lambda p, g: p - 1e-6 * g, parameters, gradient)

    def loop(parameters, images):
        # Other images in each step, so that nothing can be moved out of the loop.
        body = lambda p, shift: (step(p, jnp.roll(images, shift, 0)), None)  # noqa: E731
        return jax.lax.scan(body, parameters, jnp.arange(STEPS))[0]

    for name, function, steps in (("alone", step, 1), ("in a loop", loop, STEPS)):
        compiled = jax.jit(function)
        jax.block_until_ready(compiled(parameters, images))
        times = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            jax.block_until_ready(compiled(parameters, images))
            times.append((time.perf_counter() - began) / steps)
        print(f"{name}: {1e3 * statistics.median(times):.0f} ms a step")


if __name__ == "__main__":
    main()
