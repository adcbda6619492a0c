"""Which blocks of a convolution's output a GPU computes fastest.

    python benchmarks/convolutions.py FILE [--small]

Writes a record: the time of the gradient of each layer of the tasks' networks for a batch of 320
images, with each block, and which one `filtrax.networks` takes. Blocks of one pixel and no stride
are the plain convolution. Times are medians. `--small` is for trying the script out.
"""

import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jax
import jax.random as jr
from jaxtyping import Array

from filtrax import networks
from filtrax.lab.provenance import provenance

REPEATS = 9


class Layer(NamedTuple):
    """A convolution: (height, width) of its image, (inputs, outputs), size of kernel, stride."""

    image: tuple[int, int]
    channels: tuple[int, int]
    size: int
    stride: networks.Stride = 1
    first: bool = False


LAYERS = {
    "disc 1": Layer((120, 120), (3, 4), 9, 2, first=True),
    "disc 2": Layer((28, 28), (4, 8), 9, 2),
    "kitti 1": Layer((50, 150), (6, 16), 7, first=True),
    "kitti 2": Layer((44, 144), (16, 16), 5, (1, 2)),
    "kitti 3": Layer((40, 70), (16, 16), 5, (1, 2)),
    "kitti 4": Layer((36, 33), (16, 16), 5, (2, 2)),
    "pushing, position 1": Layer((192, 256), (6, 8), 7, first=True),
    "pushing, position 2": Layer((93, 125), (8, 16), 5),
    "pushing, position 3": Layer((45, 61), (16, 32), 3),
    "pushing, position 4": Layer((35, 39), (32, 16), 13),
    "pushing, position 5": Layer((49, 65), (16, 8), 3),
    "pushing, position 6": Layer((100, 132), (8, 1), 3),
    "pushing, rotation 1": Layer((72, 72), (3, 32), 3),
    "pushing, rotation 2": Layer((34, 34), (32, 64), 3),
}


def gradient(layer: Layer, block: tuple[int, int], count: int):
    """The compiled gradient of a layer, and its arguments."""
    shape = (layer.size, layer.size, *layer.channels)
    images = jr.normal(jr.key(0), (count, *layer.image, layer.channels[0]))
    kernel = jr.normal(jr.key(1), shape)

    def score(kernel: Array, images: Array) -> Array:
        convolve = lambda image: networks._widened_convolution(  # noqa: E731
            image, kernel, layer.stride, block
        )
        return (jax.vmap(convolve)(images) ** 2).sum()

    # Images themselves need no gradient.
    function = jax.jit(jax.grad(score, 0 if layer.first else (0, 1)))
    return function.lower(kernel, images).compile(), (kernel, images)


def seconds(function, arguments) -> float:
    """The median time of a call."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    """Measures everything and writes the record."""
    count = 2 if "--small" in sys.argv else 320
    cases = [(name, block) for name in LAYERS for block in networks.BLOCKS]
    with ThreadPoolExecutor() as pool:
        programs = list(pool.map(lambda case: gradient(LAYERS[case[0]], case[1], count), cases))
    lines = []
    for (name, block), (function, arguments) in zip(cases, programs, strict=True):
        layer = LAYERS[name]
        shape, strides = (
            (layer.size, layer.size, *layer.channels),
            networks._both_axes(layer.stride),
        )
        taken = networks._best_block(shape, strides) == block
        line = {"layer": name, "block": block, "seconds": seconds(function, arguments)}
        lines.append(line | {"taken": taken})
    record = {"origin": provenance(seed=0), "count": count, "layers": lines}
    Path(sys.argv[1]).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
