"""Flags for XLA."""

import os
import subprocess
import sys

import pytest

from filtrax.cli import compiler

PASS = "--xla_disable_hlo_passes=triton-softmax-rewriter"
TUNER = "--xla_gpu_experimental_enable_fusion_autotuner"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, f"{PASS} {TUNER}=false"),
        ("--a=1", f"--a=1 {PASS} {TUNER}=false"),
        ("--xla_disable_hlo_passes=dce --a=1", f"--xla_disable_hlo_passes=dce --a=1 {TUNER}=false"),
        (f"{TUNER}=true", f"{TUNER}=true {PASS}"),
    ],
)
def test_the_flags_of_the_user_are_kept(monkeypatch, before, after):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.11.2")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if before is not None:
        monkeypatch.setenv("XLA_FLAGS", before)
    for _ in range(2):  # once more changes nothing
        compiler.set_flags()
        assert os.environ["XLA_FLAGS"] == after


@pytest.mark.parametrize("version", ["0.1.75", "0.110.0", "1.0.0"])
def test_a_version_that_may_not_know_a_flag_is_not_given_it(monkeypatch, version):
    # Rejects a flag for all versions: XLA ends the process over one that it does not know.
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    monkeypatch.setenv("XLA_FLAGS", "")
    compiler.set_flags()
    assert os.environ["XLA_FLAGS"] == PASS


def test_this_version_knows_the_flags(monkeypatch):
    # Rejects misspelt flags.
    monkeypatch.setenv("XLA_FLAGS", "")
    compiler.set_flags()
    program = "import jax; jax.numpy.ones(1)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
