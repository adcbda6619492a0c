"""Benchmarks: clocks, costs, agreement, suites and the page.

Rejected are: a ratio that is turned round, calls that do not take turns, loops that count once, a
peer that does other work, a measurement that is made again or lost, a page that no longer follows
from its records.
"""

import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from filtrax.lab.bench import clocks, measurements, running, suites
from filtrax.lab.bench.calls import DisagreementError, check_agreement, compiled
from filtrax.lab.bench.costs import Costs, program_costs, text_costs
from filtrax.lab.bench.measurements import OURS, Conditions, Gradient, Online, check_draws, ours
from filtrax.lab.bench.page import _devices, _series, page_is_current, write_page
from filtrax.lab.bench.peaks import Peaks
from filtrax.lab.bench.peers import load_peers
from filtrax.lab.bench.problems import Sizes

PEAKS = Peaks(1e9, 1e9, 1e-6, 1e-5)


class FakeTime:
    """A clock that calls advance."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def __call__(self):
        return self.now

    def call(self, name, seconds):
        def work():
            self.now += seconds
            self.log.append(name)

        return work


def test_calls_take_turns_and_the_first_changes():
    clock = FakeTime()
    calls = {"a": clock.call("a", 1.0), "b": clock.call("b", 2.0)}
    times = clocks.interleaved(calls, seconds=0.0, least=4, clock=clock)
    assert times == {"a": [[1.0]] * 4, "b": [[2.0]] * 4}
    assert clock.log[4:] == ["a", "b", "b", "a", "a", "b", "b", "a"]  # after two of each to warm up


def test_quick_calls_have_long_turns_and_time_ends_the_rounds():
    clock = FakeTime()
    times = clocks.interleaved({"a": clock.call("a", 0.0045)}, seconds=0.1, clock=clock)
    assert {len(turn) for turn in times["a"]} == {4}
    assert len(times["a"]) in (6, 7)
    times = clocks.interleaved({"a": clock.call("a", 0.03)}, seconds=1e9, most=9, clock=clock)
    assert len(times["a"]) == 9


def test_a_ratio_is_ours_over_theirs():
    found = clocks.ratio([[1.0, 1.0], [2.0, 2.0], [1.0, 9.0]], [[2.0], [4.0], [2.0]])
    assert found["of_medians"] == 0.75
    assert found["quartiles"] == [0.5, 1.5]
    summary = clocks.summary([[1.0, 2.0], [3.0], [1.00001]])
    assert (summary["median"], summary["least"], summary["repeats"]) == (1.5, 1.0, 4)


def test_the_steps_of_a_loop_are_counted_and_its_products_too():
    matrix = jnp.ones((8, 8))

    def once(x):
        return jnp.sin(x @ matrix)

    def loop(x, steps=10):
        return jax.lax.scan(lambda x, _: (once(x), x[0]), x, length=steps)[0:2]

    alone = program_costs(compiled(once, matrix).program)
    looped = program_costs(compiled(loop, matrix).program)
    assert 2 * 8**3 <= alone.operations <= 2 * 8**3 + 3 * 8**2
    assert alone.bytes == 2 * 8 * 8 * matrix.dtype.itemsize
    assert 10 * alone.operations <= looped.operations <= 11 * alone.operations
    assert looped.launches >= 10 * alone.launches
    # A row of each step is kept: written once in the loop, and once more as a result.
    assert looped.bytes >= alone.bytes + 10 * 8 * matrix.dtype.itemsize


def test_products_of_a_library_are_counted_by_the_axes_that_they_contract():
    text = """
ENTRY %main (a: f32[7,21,10], b: f32[7,21,8]) -> f32[7,10,8] {
  %a = f32[7,21,10]{2,1,0} parameter(0)
  %b = f32[7,21,8]{2,1,0} parameter(1)
  %c = (f32[7,10,8]{2,1,0}, s8[33554432]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm", backend_config={"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["1"],"lhs_batch_dimensions":["0"]}}
  ROOT %d = f32[7,10,8]{2,1,0} get-tuple-element(%c), index=0
}
"""  # noqa: E501
    assert text_costs(text).operations == 2 * 7 * 10 * 8 * 21


def test_a_loop_that_is_one_kernel_moves_its_operands_and_results():
    text = """
ENTRY %main (a: f32[7,21,10]) -> f32[7] {
  %a = f32[7,21,10]{2,1,0} parameter(0)
  %b = f32[1470]{0} bitcast(%a)
  %c = (f32[7]{0}, f32[1470]{0}) custom-call(%b), custom_call_target="__gpu$xla.gpu.triton", metadata={op_name="jit(loss)/filtrax_loop/pallas_call"}
  ROOT %d = f32[7]{0} get-tuple-element(%c), index=0
}
"""  # noqa: E501
    once = text_costs(text.replace("filtrax_loop", "filtrax_fused"))
    looped = text_costs(text)
    assert once.launches == looped.launches == 1
    assert looped.bytes - once.bytes == 4 * (1470 + 7 + 1470)


def test_factorizations_have_operations():
    matrix = jnp.eye(12)
    found = program_costs(compiled(jnp.linalg.cholesky, matrix).program).operations
    assert 12**3 / 3 <= found <= 12**3


def test_the_time_of_a_compilation_is_not_known_where_programs_are_kept(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        assert compiled(jnp.sin, jnp.ones(3)).compile_seconds > 0
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert compiled(jnp.sin, jnp.ones(3)).compile_seconds is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        compilation_cache.reset_cache()


def test_the_floor_is_the_largest_part():
    floor = PEAKS.floor(Costs(operations=2e3, bytes=5e3, launches=3))
    assert floor == {"operations": 2e-6, "bytes": 5e-6, "launches": 3e-6, "floor": 5e-6}


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ((1.01, {"a": np.ones(3)}), "value of it must be ours to 0.001"),
        ((float("nan"), {"a": np.ones(3)}), "value of it"),
        ((1.0, {"a": np.asarray([1.0, 1.0, 1.1])}), "gradient of it by `a`"),
        (1.5, "value of it"),
    ],
)
def test_other_work_is_refused(theirs, message):
    ours = (1.0, {"a": np.ones(3)})
    check_agreement("it", ours, (1.0005, {"a": np.full(3, 1.01)}))
    check_agreement("it", ours, 1.0005)
    with pytest.raises(DisagreementError, match=message):
        check_agreement("it", ours, theirs)


def test_filters_that_draw_are_compared_by_their_scatter():
    values = [3.0, 3.1, 2.9, 3.05]
    check_draws("it", 3.3, values)
    with pytest.raises(DisagreementError):
        check_draws("it", 4.0, values)


PEER = """
from filtrax.lab.bench.calls import Call
from filtrax.lab.bench.measurements import ours

NAME = "peer"


def make_call(name, problem):
    found = ours(name, problem)
    return None if name == "pf" else Call(lambda: (FACTOR * found.run()[0], found.run()[1]))
"""


def peers_in(folder, factor):
    folder.mkdir()
    (folder / "good.py").write_text(PEER.replace("FACTOR", str(factor)))
    (folder / "lacking.py").write_text("import a_module_that_nobody_has")
    return load_peers(folder)


def test_a_measurement_has_times_ratios_costs_and_a_floor(tmp_path, monkeypatch):
    known = {}

    def once(name, problem):
        if name not in known:
            known[name] = ours(name, problem)
        return known[name]

    monkeypatch.setattr(measurements, "ours", once)
    peers, missing = peers_in(tmp_path / "peers", 1.0)
    assert missing == {"lacking": "a_module_that_nobody_has"}
    one = Gradient("ekf", Sizes(2, 1, 2, 3), peers=("peer", "absent"))
    record = one.measure(Conditions(PEAKS, peers, 0.0))
    assert one.name == "gradient/ekf/x2_z1_b2_t3"
    assert {*record["seconds"]} == {OURS, "peer"}
    # Not how large it is: on a busy machine a clock proves nothing.
    medians = [record["seconds"][name]["median"] for name in (OURS, "peer")]
    ratio = record["ratios"]["peer"]["of_medians"]
    assert ratio == pytest.approx(medians[0] / medians[1], rel=1e-2)
    assert record["costs"]["operations"] > 2 * 3 * 4 * 2**3
    assert record["floor"]["floor"] > 0
    assert record["memory_bytes"][OURS] > 0
    wrong, _ = peers_in(tmp_path / "wrong", 1.1)
    with pytest.raises(DisagreementError, match="value of peer"):
        one.measure(Conditions(PEAKS, wrong, 0.0))


def test_a_step_of_a_loop_is_timed():
    record = Online("ekf", Sizes(2, 1, 1, 3)).measure(Conditions(PEAKS, {}, 0.0))
    assert 0 < record["seconds"][OURS]["median"] <= record["seconds"][OURS]["p99"]


class FakeMeasurement:
    def __init__(self, name, done):
        self.name, self.done = name, done

    def measure(self, conditions):
        self.done.append(self.name)
        times = {"median": 1.0, "quartiles": [1.0, 1.0], "p99": 1.0, "least": 1.0, "repeats": 1}
        return {"kind": "run", "filter": "ekf", "sizes": {}, "seconds": {OURS: times}, "ratios": {}}


@pytest.fixture
def fake_suite(monkeypatch):
    done = []
    ones = [FakeMeasurement(name, done) for name in ("a/1", "a/2", "b/1")]
    monkeypatch.setattr(running, "suite", lambda name: ones)
    monkeypatch.setattr(running, "measure_peaks", lambda: PEAKS)
    return done


def test_what_is_measured_is_kept_and_not_measured_again(fake_suite, tmp_path):
    said = []
    path = running.run_suite("quick", tmp_path, only=("a/*",), peers=tmp_path, say=said.append)
    assert fake_suite == ["a/1", "a/2"]
    assert "1 of 2: a/1: filtrax 1 s" in said
    again = running.run_suite("quick", tmp_path, seconds=0.0, peers=tmp_path, say=said.append)
    assert again == path
    assert said[-1] == "Time is over with 2 of 3; the same command goes on."
    running.run_suite("quick", tmp_path, peers=tmp_path)
    assert fake_suite == ["a/1", "a/2", "b/1"]
    record = json.loads(path.read_text())
    assert list(record["measurements"]) == fake_suite
    record["origin"]["commit"] = "another"
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="measurements of another commit, another and not"):
        running.run_suite("quick", tmp_path, peers=tmp_path)


def test_a_pattern_that_matches_nothing_is_a_mistake(fake_suite, tmp_path):
    with pytest.raises(ValueError, match=r"like a/1: got \['c\*'\]"):
        running.run_suite("quick", tmp_path, only=("c*",), peers=tmp_path)


@pytest.mark.parametrize("name", suites.SUITES)
def test_names_of_a_suite_are_its_own(name):
    names = [one.name for one in suites.suite(name)]
    assert len(names) == len({*names}) >= 6
    with pytest.raises(ValueError, match="Did you mean 'quick'"):
        suites.suite("quik")


def test_the_grids_are_covered():
    gradients = [one for one in suites.suite("gpu") if isinstance(one, Gradient)]
    for filt, (axis, values) in itertools.product(("ekf", "pf"), suites.AXES.items()):
        if (filt, axis) != ("ekf", "particles"):
            found = {getattr(one.sizes, axis) for one in gradients if one.filter == filt}
            assert found >= {*values}
    compared = [one for one in suites.suite("cpu") if "dynamax" in getattr(one, "peers", ())]
    sizes = {(one.filter, one.sizes.state, one.sizes.batch) for one in compared}
    assert sizes == {*itertools.product(("ekf", "ukf"), (4, 10), (1, 32, 128))}


def fake_gradient(sizes, seconds):
    summary = clocks.summary([[float(seconds)] * 3])
    return {
        "kind": "gradient",
        "filter": "ekf",
        "sizes": vars(sizes),
        "seconds": {OURS: summary, "peer": summary},
        "ratios": {"peer": {"of_medians": 0.8765, "quartiles": [0.8, 0.9]}},
        "compile_seconds": {OURS: 1.5},
        "memory_bytes": {OURS: 2e6},
        "floor": PEAKS.floor(Costs(1e6, 1e6, 7)),
    }


def fake_record():
    measured = {
        f"gradient/ekf/{axis}/{size}": fake_gradient(Sizes(**{axis: size}), size)
        for axis in ("steps", "batch")
        for size in (2, 3)
    }
    measured["online/ekf/x4"] = fake_gradient(Sizes(), 1.0) | {"kind": "online", "ratios": {}}
    measured["gradient/pf/large"] = {"refused": "The memory of the device is too small."}
    origin = {"device": {"platform": "cpu", "kind": "cpu"}, "commit": "0123456789ab", "dirty": True}
    origin |= {"packages": {"jax": "1"}, "python": "3"}
    record = {"suite": "cpu", "origin": origin, "peers": {}, "peaks": vars(PEAKS)}
    return record | {"measurements": measured}


def test_a_page_is_current_until_a_record_or_a_file_changes(tmp_path):
    records, page = tmp_path / "records", tmp_path / "docs" / "page.md"
    records.mkdir()
    (records / "cpu.json").write_text(json.dumps(fake_record()))
    assert not page_is_current(records, page)
    write_page(records, page)
    assert page_is_current(records, page)
    text, details = page.read_text(), (records / "README.md").read_text()
    assert "## CPU" in text
    assert "(../records/README.md)" in text
    assert "| 0.876 | `cpu` |" in text
    assert "figures/bench_cpu.svg" in text
    assert "## CPU, record `cpu`" in details
    assert "Commit 0123456789 with changes" in details
    assert "0.876 [0.8, 0.9]" in details
    assert "too small" in details
    assert "(../docs/page.md)" in details
    (page.parent / "figures" / "bench_old.svg").write_text("")
    assert not page_is_current(records, page)
    write_page(records, page)
    assert page_is_current(records, page)
    page.write_text(text + "more")
    assert not page_is_current(records, page)
    write_page(records, page)
    changed = json.dumps(fake_record()).replace("0.8765", "0.7654")
    (records / "cpu.json").write_text(changed)
    assert not page_is_current(records, page)


def test_the_newest_record_of_a_problem_is_shown_in_brief():
    # Rejects the record whose name comes last, and a problem that is listed once for each record.
    old, new = fake_record(), fake_record()
    old["origin"] |= {"started": "2026-01-02T00:00:00"}
    new["origin"] |= {"started": "2026-01-03T00:00:00"}
    del new["measurements"]["online/ekf/x4"]
    text = _devices({"b": old, "a": new}, {})
    rows = [line for line in text.splitlines() if line.startswith("| ekf")]
    assert [row.split("|")[-2].strip() for row in rows] == ["`a`"] * 4 + ["`b`"]


def test_the_page_of_benchmarks_is_that_of_the_records():
    root = Path(__file__).parents[3]
    assert page_is_current(root / "benchmarks/results/bench", root / "docs/benchmarks.md")


def test_the_table_of_series_shows_both_roads():
    """Also in brief, where ratios to our own variants are left out elsewhere."""
    summary = {"median": 2e-3, "quartiles": [1e-3, 3e-3], "p99": 4e-3}
    ratio = {"of_medians": 0.5, "quartiles": [0.25, 0.75]}
    one = {
        "kind": "smoothing",
        "record": "cpu",
        "seconds": {OURS: summary},
        "ratios": {"filtrax in parallel": ratio, "dynamax": ratio},
    }
    table = _series({"smoothing/x4_z2_b1_t1000": one}, brief=True)
    assert "| ratio to filtrax in parallel | ratio to dynamax |" in table
    assert "| x4_z2_b1_t1000 | 2 ms | – | 0.5 | 0.5 | `cpu` |" in table
