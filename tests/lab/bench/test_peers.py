"""Other libraries do the same work as ours: value and gradient agree to rounding.

Skipped for each library that is not installed (`pip install filtrax[bench]`).
"""

from pathlib import Path

import jax
import numpy as np
import pytest

from filtrax.lab.bench import suites
from filtrax.lab.bench.calls import check_agreement
from filtrax.lab.bench.measurements import Conditions, check_draws, online_step, ours
from filtrax.lab.bench.peaks import Peaks
from filtrax.lab.bench.peers import load_peers
from filtrax.lab.bench.problems import Sizes, make_problem
from filtrax.lab.bench.series import Smoothing, smoothing_call

FOLDER = Path(__file__).parents[3] / "benchmarks" / "peers"
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.xdist_group("peers"),
]

CASES = [
    ("dynamax", "ekf", 3),
    ("dynamax", "ukf", 3),
    ("cuthbert", "ekf", 3),
    ("torch", "ekf", 3),
    ("torch", "ukf", 3),
    ("filterpy", "ekf", 1),
]


def peer(name):
    pytest.importorskip(name, reason=f"{name} is not installed")
    # Other libraries promote types and ranks as they like.
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    jax.config.update("jax_numpy_rank_promotion", "allow")
    return load_peers(FOLDER)[0][name]


@pytest.fixture(autouse=True)
def strict_again():
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.mark.long
@pytest.mark.parametrize(("name", "filt", "batch"), CASES)
def test_a_peer_gives_our_value_and_gradient(name, filt, batch):
    other = peer(name)
    problem = make_problem(Sizes(3, 2, batch, 6), np.float64)
    theirs = other.make_call(filt, problem).run()
    check_agreement(name, ours(filt, problem).run(), theirs, value=1e-8, gradient=1e-7)


@pytest.mark.long
def test_the_particle_filter_of_torch_scatters_about_ours():
    other = peer("torch")
    problem = make_problem(Sizes(2, 1, 8, 6, particles=400), np.float64)
    call = other.make_call("pf", problem)
    found = [call.run() for _ in range(8)]
    expected = ours("pf", problem).run()
    check_draws("torch", expected[0], [value for value, _ in found])
    for name, gradient in expected[1].items():
        each = np.stack([gradients[name] for _, gradients in found])
        spread = each.std(0, ddof=1)
        assert (np.abs(each.mean(0) - gradient) < 5 * spread + 1e-3).all(), name


@pytest.mark.long
def test_a_loop_of_filterpy_has_our_means():
    other = peer("filterpy")
    problem = make_problem(Sizes(3, 2, 1, 6), np.float64)
    calls = online_step("ekf", problem), other.make_online("ekf", problem)
    for _ in range(7):
        mine, theirs = (call.run() for call in calls)
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-10)


def test_all_peers_are_there_or_say_what_they_lack():
    found, missing = load_peers(FOLDER)
    assert len(found) + len(missing) == 4
    for module in found.values():
        assert module.make_call("mcukf", make_problem(Sizes(2, 1, 2, 2))) is None


@pytest.mark.long
@pytest.mark.parametrize("name", ["dynamax", "cuthbert"])
def test_a_peer_smooths_as_we_do(name):
    """Rejects states that are shifted by one, and a prior of another time."""
    other = peer(name)
    problem = make_problem(Sizes(3, 2, 2, 7), np.float64)
    means, covariances, values = smoothing_call(problem).run()
    for call in other.make_smoothing(problem).values():
        theirs = call.run()
        np.testing.assert_allclose(theirs[0], means, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(theirs[2], values, rtol=1e-7)
        squares = theirs[1] if name == "dynamax" else theirs[1] @ theirs[1].swapaxes(-1, -2)
        np.testing.assert_allclose(squares, covariances, rtol=1e-6, atol=1e-7)


@pytest.mark.long
def test_both_roads_of_a_series_are_measured():
    """With results that agree: rejects a road that does other work."""
    one = Smoothing(Sizes(batch=1, steps=20))
    record = one.measure(Conditions(Peaks(1e9, 1e9, 1e-6, 1e-5), seconds=0.01))
    assert set(record["ratios"]) == {"filtrax in parallel", "filtrax filter alone"}


def test_the_long_suite_has_growing_series():
    names = [measured.name for measured in suites.suite("long")]
    assert len(set(names)) == len(names)
    assert {measured.sizes.steps for measured in suites.suite("long")} >= {1000, 100_000}
