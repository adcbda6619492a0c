"""XLA flags; they must be set before JAX is first used."""

import importlib.metadata
import os

DISABLED = "--xla_disable_hlo_passes"
TUNER = "--xla_gpu_experimental_enable_fusion_autotuner"

VERSIONS_WITH_TUNER = ("0.10", "0.11")
"""Versions of jaxlib whose XLA knows the flag `TUNER`; unknown flags abort the process."""


def set_flags() -> None:
    """Disables two searches of XLA that dominate compile times for images on GPUs.

    One pass looks for normalizations like softmax and layer norm, the other tunes the fusion of
    all reductions. Both try every tiling, and the number of tilings is a product over axes, of
    which arrays of images have five or more. Flags of the same name that the user has set are
    kept.
    """
    _set(DISABLED, "triton-softmax-rewriter")
    version = importlib.metadata.version("jaxlib").split(".")
    if ".".join(version[:2]) in VERSIONS_WITH_TUNER:
        _set(TUNER, "false")


def _set(name: str, value: str) -> None:
    flags = os.environ.get("XLA_FLAGS", "")
    if name not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {name}={value}".strip()
