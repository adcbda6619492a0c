"""Strict numerics for all tests: nothing is promoted or broadcast by accident."""

import atexit
import gc
import importlib
import os
import platform
import shutil
import sys
import tempfile

import jaxlib.version

# Tests compile much and run little: the compiler's optimizations cost more than they save, and so
# do its threads, since tests run side by side. One set of instructions rounds alike everywhere.
FLAGS = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
if jaxlib.version.__version_info__ < (0, 11):  # a flag that is unknown ends the process
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
if platform.machine() == "x86_64":
    FLAGS.append("--xla_cpu_max_isa=AVX2")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))

# What one process has compiled, no other of the same run compiles again: workers inherit the
# variables of the process that starts them, and so do the commands that tests run.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="filtrax-programs-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import pytest
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation trips hypothesis' deadline, and a test that fails must fail again tomorrow.
settings.register_profile("filtrax", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("filtrax")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Workers are given whole files, whose tests trace the same functions.

    Some files name a group of several instead; documentation runs in processes of its own.
    """
    for item in items:
        if not any(map(item.get_closest_marker, ("xdist_group", "documentation"))):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_collection_finish():
    """Tracing makes many objects and no garbage: to look for some each time takes a while."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory):
    """What is kept between runs is not kept between tests, nor in the folder of who runs them."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def unrolled_algebra(monkeypatch):
    """Unrolls as large matrices as a GPU does, whatever this machine is."""
    largest = importlib.import_module("filtrax.linalg._small").LARGEST_UNROLLED
    monkeypatch.setattr("filtrax.linalg._small.LARGEST_UNROLLED_ON_CPU", largest)
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.fixture
def own_registry(monkeypatch):
    """What a test registers, and the plugins that it loads, are forgotten after it."""
    from filtrax.lab import plugins, registry
    from filtrax.lab.tasks import builtin  # noqa: F401, registers what shall stay

    families = {base: dict(known) for base, known in registry._FAMILIES.items()}
    monkeypatch.setattr(registry, "_FAMILIES", families)
    monkeypatch.setattr(plugins, "_LOADED", {})
    yield
    for module in plugins._LOADED:
        sys.modules.pop(module, None)
