"""Training on several devices gives the numbers of one: 8 devices of a CPU, and two processes.

Rejected are: a batch that every device computes whole, gradients that are not added up or added up
twice, members that are mixed up, random numbers that depend on where they are drawn.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from filtrax.training.devices import ONE, place

PROGRAM = Path(__file__).with_name("many_devices.py")


def start(num_devices, *arguments):
    flags = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={num_devices}"
    )
    # Programs are not kept: each process of several is to compile what it runs.
    kept = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"} | kept
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def result(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def assert_same(found, expected):
    for name in ("validation", "losses", "parameters"):
        for ours, theirs in zip(found[name], expected[name], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def first_members(found, count):
    names = ("validation", "losses", "parameters")
    return {name: [values[:count] for values in found[name]] for name in names}


@pytest.mark.long
def test_eight_devices_and_two_processes_give_the_numbers_of_one():
    one = start(8, "one", 8)
    members, batch = start(8, "all", 8), start(8, "all", 3)
    one, members, batch = map(result, (one, members, batch))
    assert (one["used"], one["sums"]) == ([1], 0)
    # Eight members on eight devices: each has its own, and nothing is added up.
    assert (members["used"], members["apart"], members["sums"]) == ([8], True, 0)
    assert_same(members, one)
    # Three members: each device has an eighth of the batch.
    assert (batch["used"], batch["apart"]) == ([8], False)
    assert batch["sums"] > 0
    assert_same(batch, first_members(one, 3))
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    both = [start(4, "all", 3, number, address) for number in (0, 1)]
    for found in map(result, both):
        assert (found["devices"], found["used"]) == (8, [8])
        assert_same(found, batch)


def test_one_device_is_as_none():
    assert place("one", 3, 4) is ONE
    assert place(jax.devices()[:1], 3, 4) is ONE
    tree = {"a": np.ones(3)}
    for way in (ONE.members, ONE.everywhere, ONE.sequences, ONE.batch, ONE.results, ONE.gathered):
        assert way(tree) is tree


def test_unknown_devices_are_refused():
    with pytest.raises(ValueError, match='must be "one", "all" or a list of devices, got \'both\''):
        place("both", 3, 4)


UNEVEN = """
import jax
from filtrax.training.devices import place
assert place("all", 3, 4).mesh.size == 4
assert place("all", 8, 3).members_apart
place("all", 3, 6)
"""


def test_what_cannot_be_dealt_out_is_refused():
    flags = "--xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", UNEVEN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    message = "must be a multiple of 4: got 3 members and batches of 6."
    assert message in done.stderr
