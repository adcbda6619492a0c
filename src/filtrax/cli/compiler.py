"""Settings of XLA, which are read when JAX is first used."""

import importlib.metadata
import os

DISABLED = "--xla_disable_hlo_passes"
TUNER = "--xla_gpu_experimental_enable_fusion_autotuner"

VERSIONS_WITH_TUNER = ("0.10", "0.11")
"""Of jaxlib: a flag that XLA does not know ends the process."""


def set_flags() -> None:
    """Leaves out two searches of XLA that take most of its time where there are images on a GPU.

    One looks at sums that are divided by, as in a softmax or a layer norm, the other at all sums
    and maxima. Both try every tiling of them. An array of images has five or more axes, and the
    number of tilings is a product over axes. Flags of the user of the same name are left as they
    are.
    """
    _set(DISABLED, "triton-softmax-rewriter")
    version = importlib.metadata.version("jaxlib").split(".")
    if ".".join(version[:2]) in VERSIONS_WITH_TUNER:
        _set(TUNER, "false")


def _set(name: str, value: str) -> None:
    flags = os.environ.get("XLA_FLAGS", "")
    if name not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {name}={value}".strip()
