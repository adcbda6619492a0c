"""What tests of kernels share: a GPU that is not there, and kernels that a CPU interprets."""

import jax
import pytest
from jax.interpreters import mlir

from filtrax.accelerate import _triton


@pytest.fixture
def kernels_in(monkeypatch):
    """A function that counts the kernels in a GPU's program of a function, without a GPU."""
    if jax.__version_info__ >= (0, 11):  # which asks for the kind of GPU
        from jax._src.pallas.triton import gpu_info

        monkeypatch.setitem(gpu_info.registry, "cpu", lambda: H200(gpu_info))

    def count(function, *operands):
        traced = jax.jit(function).trace(*operands)
        with _triton.lowering():
            program = traced.lower(lowering_platforms=("cuda",)).as_text()
        return program.count("__gpu$xla.gpu.triton")

    return count


def H200(gpu_info):
    """What JAX knows of such a GPU."""
    return gpu_info.get_gpu_info_from_version(gpu_info.GpuVersion.H200)


@pytest.fixture
def with_gpu(monkeypatch):
    """Traces programs as where there is a GPU."""
    monkeypatch.setattr(_triton, "has_gpu", lambda: True)
    monkeypatch.setattr(_triton, "_warned", set())
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.fixture
def lower_loops():
    """A function that chooses what loops are lowered to on a CPU, until the end of a test."""
    from filtrax.accelerate import loops

    yield lambda rule: mlir.register_lowering(loops.operation, rule, "cpu")
    inline = mlir.lower_fun(loops._inline, multiple_results=True)
    mlir.register_lowering(loops.operation, inline, "cpu")


@pytest.fixture
def loops_on_cpu(with_gpu, lower_loops, monkeypatch):
    """Traces programs as if a CPU were the GPU, which runs loops as written; lists these loops."""
    from filtrax.accelerate import loops

    lowered, inline = [], mlir.lower_fun(loops._inline, multiple_results=True)

    def rule(context, *operands, **params):
        lowered.append(params["loop"])
        return inline(context, *operands, **params)

    monkeypatch.setattr(_triton, "PLATFORM", "cpu")
    lower_loops(rule)
    with jax.default_device("cpu"):
        yield lowered


@pytest.fixture
def interpreted(loops_on_cpu, lower_loops, monkeypatch):
    """Lowers loops to kernels, which a CPU interprets; lists how many programs each one has."""
    from filtrax.accelerate import loops

    launches, launch = [], _triton.launch

    def interpret(program, shapes, count, operands, *, warps):
        results = launch(program, shapes, count, operands, warps=warps, interpret=True)
        launches.append(count)
        return results

    monkeypatch.setattr(_triton, "launch", interpret)
    lower_loops(loops._lower)
    return launches
