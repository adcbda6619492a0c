"""Flags for XLA."""

import os

import pytest

from filtrax.cli import compiler


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "--xla_disable_hlo_passes=triton-softmax-rewriter"),
        ("--a=1", "--a=1 --xla_disable_hlo_passes=triton-softmax-rewriter"),
        ("--xla_disable_hlo_passes=dce --a=1", "--xla_disable_hlo_passes=dce --a=1"),
    ],
)
def test_the_flags_of_the_user_are_kept(monkeypatch, before, after):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if before is not None:
        monkeypatch.setenv("XLA_FLAGS", before)
    for _ in range(2):  # once more changes nothing
        compiler.set_flags()
        assert os.environ["XLA_FLAGS"] == after
