"""Settings of XLA, which are read when JAX is first used."""

import os

DISABLED = "--xla_disable_hlo_passes"


def set_flags() -> None:
    """Leaves out a pass of XLA that takes minutes for normalized images on a GPU.

    It looks for sums that are divided by, as in a softmax or a layer norm, and tries every
    tiling of them. An array of images has five or more axes, and the number of tilings is a
    product over axes. Flags of the user that name passes are left as they are.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if DISABLED not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {DISABLED}=triton-softmax-rewriter".strip()
