"""When loops become kernels, and what happens where they cannot."""

import ast
import functools
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import subjaxprs
from jax.interpreters import mlir

import filtrax
from filtrax import _hooks
from filtrax.accelerate import _triton, limits, loops
from filtrax.accelerate.rules import RULES
from filtrax.filters import filter_trajectory

ROOT = Path(filtrax.__file__).parent
LENGTH = 5
FILTER = filtrax.ExtendedKalmanFilter()
PRIOR = filtrax.Gaussian(jnp.zeros(2, jnp.float32), jnp.eye(2, dtype=jnp.float32))
READINGS = jnp.asarray(np.random.default_rng(0).normal(size=(LENGTH, 1)), jnp.float32)


def model_of(traces):
    """A model that notes when its process is traced."""

    def process(state, inputs):
        traces.append(state)
        return jnp.sin(state)

    return filtrax.StateSpaceModel(
        process,
        filtrax.constant_noise(jnp.full(2, 0.1, jnp.float32)),
        lambda state, inputs: state[:1],
        filtrax.DirectSensor(filtrax.constant_noise(jnp.full(1, 0.5, jnp.float32))),
    )


MODEL = model_of([])


def means(readings=READINGS, model=MODEL):
    """Of `run`, which is compiled by itself."""
    return filtrax.run(FILTER, model, PRIOR, readings).beliefs.mean


def loops_in(jaxpr):
    own = [equation for equation in jaxpr.eqns if equation.primitive is loops.operation]
    return own + [loop for inner in subjaxprs(jaxpr) for loop in loops_in(inner)]


def loops_of(function, *operands):
    return loops_in(jax.make_jaxpr(function)(*operands).jaxpr)


@pytest.fixture
def spoiled(loops_on_cpu, lower_loops):
    """Lowers loops to programs with wrong results, which show where such a program runs."""

    def ones(*operands, **params):
        return [jnp.ones(aval.shape, aval.dtype) for aval in loops._shapes(*operands, **params)]

    lower_loops(mlir.lower_fun(ones, multiple_results=True))


@pytest.fixture
def warned():
    """All warnings of a test."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        yield messages


def test_the_switch_works_after_a_first_call(spoiled):
    # Rejects a program that is kept for both settings, of `run` or of one's own.
    own = jax.jit(lambda readings: means_of_own(readings))
    for function in (means, own):
        right = plain_means()
        for _ in range(2):
            assert (function(READINGS) == 1).all()
            with filtrax.acceleration(False):
                np.testing.assert_allclose(function(READINGS), right, rtol=1e-6)
                with filtrax.acceleration(True):
                    assert (function(READINGS) == 1).all()


def means_of_own(readings):
    trajectory = filtrax.Trajectory(PRIOR.mean, PRIOR.covariance, readings)
    return filter_trajectory(FILTER, MODEL, trajectory).beliefs.mean


def plain_means():
    """By a loop that no switch has to do with."""
    return filtrax.run(FILTER, MODEL, PRIOR, READINGS, recompute=False).beliefs.mean


def test_the_variable_is_read_at_each_call(spoiled, monkeypatch):
    # Rejects a variable that is read when the package is imported, or when a program is compiled.
    right = plain_means()
    for _ in range(2):
        monkeypatch.delenv("FILTRAX_ACCELERATE", raising=False)
        assert (means() == 1).all()
        monkeypatch.setenv("FILTRAX_ACCELERATE", "0")
        np.testing.assert_allclose(means(), right, rtol=1e-6)
        with filtrax.acceleration(True):
            np.testing.assert_allclose(means(), right, rtol=1e-6)


def test_a_gradient_is_compiled_for_the_setting_of_its_call(spoiled):
    # Rejects a switch that the derivative of a program does not see.
    gradient = jax.jit(jax.grad(lambda readings: means_of_own(readings).sum()))
    results = [gradient(READINGS)]
    with filtrax.acceleration(False):
        results.append(gradient(READINGS))
    results.append(gradient(READINGS))
    np.testing.assert_array_equal(results[0], results[2])
    assert np.abs(results[0] - results[1]).max() > 0.1


def test_programs_have_loops_or_have_none(with_gpu):
    # Rejects a switch that a trace does not see.
    counts = []
    for enabled in (True, False, True):
        with filtrax.acceleration(enabled):
            counts.append(len(loops_of(means, READINGS)))
    assert counts == [1, 0, 1]


@pytest.mark.parametrize(("recompute", "keeps"), [(None, [True]), (True, [False]), (False, [])])
def test_who_keeps_all_for_a_backward_pass_has_no_kernel(recompute, keeps, with_gpu):
    # Rejects a kernel for who asked for something else, and one that keeps what it need not.
    def run(readings):
        return filtrax.run(FILTER, MODEL, PRIOR, readings, recompute=recompute).beliefs.mean

    assert [loop.params["loop"].keep for loop in loops_of(run, READINGS)] == keeps


def test_devices_that_kernels_are_not_for_run_plain_loops(with_gpu, lower_loops):
    # Rejects a kernel on a CPU because there is a GPU, too.
    def refuse(*operands, **params):
        raise AssertionError("a CPU was given a kernel")

    lower_loops(refuse)
    assert loops_of(means, READINGS)
    np.testing.assert_allclose(means(), plain_means(), rtol=1e-6)


def test_a_newer_jax_runs_plain_loops_and_says_so_once(with_gpu, monkeypatch, warned):
    # Rejects kernels that nobody tested, and a warning for every program.
    monkeypatch.setattr(limits, "NEWEST_JAX", (0, 1))
    assert not loops_of(means, READINGS)
    assert not loops_of(means, READINGS[:3])
    np.testing.assert_allclose(means(), plain_means(), rtol=1e-6)
    [warning] = warned
    assert f"up to JAX 0.1, and this is {jax.__version__}" in str(warning.message)
    assert "filtrax.acceleration(False)" in str(warning.message)


def test_who_switches_kernels_off_is_not_warned(with_gpu, monkeypatch):
    # Rejects a warning that cannot be got rid of; here all of them are errors.
    monkeypatch.setattr(limits, "NEWEST_JAX", (0, 1))
    with filtrax.acceleration(False):
        means()


def test_a_jax_without_triton_runs_plain_loops(with_gpu, monkeypatch, warned):
    # Rejects an import that fails in the program of a user.
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", None)
    monkeypatch.delattr("jax.experimental.pallas.triton", raising=False)
    assert not loops_of(means, READINGS)
    [warning] = warned
    assert "has no road to Triton" in str(warning.message)


def test_a_loop_that_cannot_be_lowered_runs_plainly_and_says_why_once(
    interpreted, monkeypatch, warned
):
    # Rejects an error instead of the results, a warning without a reason, and one for each loop.
    monkeypatch.setattr(limits, "MOST_PLACES", 3)
    results = means(), means(READINGS[:4])
    np.testing.assert_allclose(results[0], plain_means(), rtol=1e-6)
    np.testing.assert_allclose(results[1], plain_means()[:4], rtol=1e-6)
    [warning] = warned
    assert "an array has too many numbers to count them" in str(warning.message)
    assert not interpreted


def test_a_backward_pass_that_is_no_kernel_leaves_the_forward_pass_one(
    interpreted, monkeypatch, warned
):
    # Rejects a gradient that fails because its operations are others than those of the value.
    monkeypatch.delitem(RULES, "cos")

    def hooked(step, first, inputs):
        otherwise = lambda first, inputs: jax.lax.scan(step, first, inputs)  # noqa: E731
        return _hooks.scan(step, first, inputs, otherwise, keep=True, accelerate=True)

    def total_of(scan, scale):
        step = lambda carry, push: (jnp.sin(scale * carry) + push, carry)  # noqa: E731
        return scan(step, jnp.zeros(1, jnp.float32), READINGS)[1].sum()

    scale = jnp.float32(0.5)
    results, expected = (
        jax.jit(jax.value_and_grad(functools.partial(total_of, scan)))(scale)
        for scan in (hooked, jax.lax.scan)
    )
    np.testing.assert_allclose(results, expected, rtol=1e-6)
    assert interpreted == [1]
    [warning] = warned
    assert "kernels have no cos" in str(warning.message)


@pytest.mark.skipif(_triton.has_gpu(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_traced_twice():
    # Rejects a second trace of models, which is half of what compiling takes; warnings are errors.
    counts = []
    for enabled in (True, False):
        traces = []
        with filtrax.acceleration(enabled):
            means(model=model_of(traces))
        counts.append(len(traces))
    assert counts[0] == counts[1] > 0


def test_with_a_gpu_a_step_is_traced_for_both(with_gpu):
    # Rejects a count of traces that would not see a second one.
    counts = []
    for enabled in (True, False):
        traces = []
        with filtrax.acceleration(enabled):
            loops_of(functools.partial(means, model=model_of(traces)), READINGS)
        counts.append(len(traces))
    assert counts[0] > counts[1] > 0


SCRIPT = """
import json
import sys
import jax.numpy as jnp
import filtrax
import filtrax.filters

def ours():
    return sorted(name for name in sys.modules if name.startswith("filtrax.accelerate"))

imported = ours()
noise = filtrax.constant_noise(jnp.full(2, 0.1))
sensor = filtrax.DirectSensor(filtrax.constant_noise(jnp.full(1, 0.5)))
process, observe = (lambda state, inputs: jnp.sin(state)), (lambda state, inputs: state[:1])
model = filtrax.StateSpaceModel(process, noise, observe, sensor)
prior, readings = filtrax.Gaussian(jnp.zeros(2), jnp.eye(2)), jnp.linspace(-1, 1, 5)[:, None]

def numbers():
    beliefs = filtrax.run(filtrax.ExtendedKalmanFilter(), model, prior, readings).beliefs
    return [*beliefs.mean.ravel().tolist(), *beliefs.covariance.ravel().tolist()]

results = [numbers()]
with filtrax.acceleration(False):
    results.append(numbers())
report = {"home": filtrax.__file__, "results": results, "imported": imported, "used": ours()}
report["pallas"] = "jax.experimental.pallas" in sys.modules
print(json.dumps(report))
"""


def report_of(folder):
    """What the script says where the package is in a folder."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert Path(report["home"]).parent.parent == folder
    return report


def test_beliefs_are_the_same_without_the_package_of_kernels(tmp_path):
    """Rejects a library that needs its optional part.

    Also an import of that part, or of Pallas, before a loop could use it.
    """
    (tmp_path / "filtrax").mkdir()
    for entry in ROOT.iterdir():
        if entry.name != "accelerate":
            (tmp_path / "filtrax" / entry.name).symlink_to(entry)
    whole, without = report_of(ROOT.parent), report_of(tmp_path)
    assert whole["results"] == without["results"]
    assert whole["results"][0] == whole["results"][1]
    assert whole["imported"] == without["imported"] == without["used"] == []
    assert "filtrax.accelerate" in whole["used"]
    if not _triton.has_gpu():
        assert "filtrax.accelerate.loops" not in whole["used"]
        assert not whole["pallas"]


PRIVATE = ("_src", "core", "extend", "interpreters", "experimental")
"""Parts of JAX without a promise that they stay."""

USED = {
    "accelerate/_jax.py": {
        *("jax.core.ShapedArray", "jax.core.eval_jaxpr"),
        *("jax.extend.core.Jaxpr", "jax.extend.core.JaxprEqn", "jax.extend.core.Literal"),
        *("jax.extend.core.Primitive", "jax.extend.core.subjaxprs"),
        *("jax.interpreters.ad", "jax.interpreters.batching", "jax.interpreters.mlir"),
        "jax.interpreters.partial_eval",
    },
    "linalg/_jax.py": {
        *("jax.core.ShapedArray", "jax.extend.core.Primitive"),
        *("jax.interpreters.ad", "jax.interpreters.batching", "jax.interpreters.mlir"),
    },
    "accelerate/_triton.py": {
        "jax.experimental.pallas",
        "jax.experimental.pallas.triton",
    },
    "_checks.py": {"jax.core.Tracer"},
    "linalg/_small.py": {"jaxlib.version"},
}
"""What the library uses of these, by its files: where to look when JAX changes."""


def imports_of(tree):
    """Full names of what a file imports, and of what it takes from `jax` by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"


def is_private(name):
    package, part, *_ = [*name.split("."), ""]
    return (package == "jax" and part in PRIVATE) or (package == "jaxlib" and part != "")


def test_few_files_use_what_jax_may_change():
    # Rejects a use that is spread over the library, and one that has gone and is still listed.
    uses = {}
    for path in sorted(ROOT.rglob("*.py")):
        names = {name for name in imports_of(ast.parse(path.read_text())) if is_private(name)}
        if names:
            uses[str(path.relative_to(ROOT))] = names
    assert uses == USED
