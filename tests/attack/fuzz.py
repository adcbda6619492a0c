"""Fuzzers of all parsers: hypothesis searches for an input that ends badly.

    python tests/attack/fuzz.py [--minutes 10]

Each parser gets its share of the time, with new inputs in every run. It ends with code 1 at the
first finding, and prints the smallest input that shows it.
"""

import argparse
import functools
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "lab")]

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from attack import attacks

SEEDS = st.integers(8, 2**40)


@st.composite
def variants(draw, name):
    """A good file with up to four damages, or any bytes."""
    data = attacks._samples()[name]
    for seed in draw(st.lists(SEEDS, max_size=4)):
        data = attacks.damaged(data, seed)
    return draw(st.one_of(st.just(data), st.binary(max_size=300)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=9), below),
    max_leaves=12,
)


def fuzz(name, strategy, run, seconds):
    """Tries inputs of a strategy for some seconds; returns their number."""
    count, end = 0, time.monotonic() + seconds

    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.target, Phase.shrink],
    )
    @given(strategy)
    def one(value):
        nonlocal count
        count += 1
        attack = attacks.Attack("fuzz", name, functools.partial(run, value))
        with tempfile.TemporaryDirectory() as folder:
            verdict, said = attacks.judge(attack, Path(folder))
        assert verdict != attacks.BAD, said

    while time.monotonic() < end:
        one()
    return count


def of_file(name, data, folder):
    """Reads bytes as a file of a format; a run has its other files beside it."""
    place = folder / "run"
    place.mkdir()
    for other in attacks.OF_A_RUN if name in attacks.OF_A_RUN else ():
        (place / other).write_bytes(attacks._samples()[other])
    end = b"\nno_such_setting = 1\n" if name == "config.toml" else b""
    (place / name).write_bytes(data + end)
    return attacks.READERS[name](place / name)


def of_setting(pair, folder):
    """Reads a setting with any value."""
    from filtrax.lab import config
    from filtrax.lab.config.settings import Experiment

    whole = config.as_dict(config.build(Experiment, {}))
    keys = list(attacks._keys(whole))
    number, value = pair
    return attacks._setting(whole, keys[number % len(keys)], value, folder)


def of_assignment(text, folder):
    """Reads any text as an assignment of the command line."""
    from filtrax.lab import config
    from filtrax.lab.config.settings import Experiment

    del folder
    config.build(Experiment, {}, [text])


def main() -> int:
    """Fuzzes all parsers for some minutes; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    readers = {name: (variants(name), functools.partial(of_file, name)) for name in attacks.READERS}
    pairs = st.tuples(st.integers(0, 10**6), JSON)
    assignments = st.builds("{}={}".format, st.sampled_from(["seed", "stages.0.train"]), st.text())
    targets = {
        **{
            name: (strategy, lambda data, folder, run=run: run(data, folder))
            for name, (strategy, run) in readers.items()
        },
        "settings": (pairs, of_setting),
        "assignments": (st.text(max_size=60) | assignments, of_assignment),
    }
    total = 0
    for name, (strategy, run) in targets.items():
        count = fuzz(name, strategy, run, 60 * minutes / len(targets))
        total += count
        print(f"{name}: {count} inputs", flush=True)
    print(f"{total} inputs without a finding")
    return 0


if __name__ == "__main__":
    sys.exit(main())
