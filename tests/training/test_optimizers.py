"""Optimizers are compared by what they do, so that equal ones share a program."""

import gc
import logging
import resource

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import filtrax
from filtrax.training import filtering
from filtrax.training.optimizers import Comparable, comparable
from filtrax.trajectory import stack
from systems import beacon_model, beacon_trajectory

MAKERS = {
    "adam": lambda rate: optax.adam(rate),
    "a schedule": lambda rate: optax.sgd(optax.warmup_cosine_decay_schedule(0.0, rate, 10, 100)),
    "a chain": lambda rate: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate)),
    "of parts": lambda rate: optax.masked(optax.adam(rate), lambda tree: tree),
    "with a line search": lambda rate: optax.lbfgs(rate),
    "an array": lambda rate: optax.scale_by_schedule(lambda step: np.asarray([rate, 1.0]).sum()),
}


@pytest.mark.parametrize("name", MAKERS)
def test_equal_optimizers_are_equal_and_others_are_not(name):
    # Rejects identity, by which nothing is equal, and code alone, by which rates do not count.
    one, same, other = (comparable(MAKERS[name](rate)) for rate in (0.1, 0.1, 0.2))
    assert comparable(one) is one
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


def test_functions_that_only_look_alike_are_not_equal():
    # Rejects defaults, closures and objects that are left out of the comparison.
    def function(number, *, default):
        def closed(value, kept=default, *, factor=default):
            return value * number + kept * factor

        return closed

    first = Comparable(function(1.0, default=2.0))
    assert first == Comparable(function(1.0, default=2.0))
    for other in (function(1.5, default=2.0), function(1.0, default=3.0), lambda value: value):
        assert first != Comparable(other)
    objects = [Comparable(function(object(), default=1.0)) for _ in range(2)]
    assert objects[0] != objects[1]
    assert Comparable(function(1, default=1.0)) != Comparable(function(1.0, default=1.0))


def test_a_function_that_closes_over_itself_has_an_end():
    def make():
        def count(number):
            return number and 1 + count(number - 1)

        return count

    assert Comparable(make()) == Comparable(make())
    assert Comparable(make())(3) == 3


def test_a_comparable_optimizer_does_what_the_other_does():
    parameters = {"a": jnp.arange(3.0)}
    plain, wrapped = optax.sgd(0.1), comparable(optax.sgd(0.1))
    for optimizer in (plain, wrapped):
        assert isinstance(optimizer, type(plain))
    updates = [o.update(parameters, o.init(parameters), parameters)[0] for o in (plain, wrapped)]
    np.testing.assert_array_equal(updates[0]["a"], updates[1]["a"])


def test_fits_with_fresh_optimizers_share_one_program():
    """Rejects a program, and memory, for every call."""
    data = stack([beacon_trajectory(4, seed) for seed in range(2)])
    traces, counts = [], []

    def loss(belief, state, space, labelled):
        traces.append(0)
        return filtrax.losses.nll(belief, state, space, labelled)

    objective = filtering(loss)
    for rate in (1e-3, 1e-3, 1e-3, 2e-3):
        filtrax.fit(
            filtrax.ExtendedKalmanFilter(),
            beacon_model(),
            data,
            objective=objective,
            optimizer=optax.adam(rate),
            num_steps=2,
            batch_size=2,
            key=jr.key(0),
        )
        counts.append(len(traces))
    first, second, third, other = counts
    assert 0 < first == second == third < other


def test_two_hundred_fits_compile_once_and_do_not_grow(caplog):
    """Rejects programs, or data, that each call leaves behind: 11 MB a call, once."""
    caplog.set_level(logging.WARNING, "filtrax")
    data = stack([beacon_trajectory(2, seed) for seed in range(2)])
    filt, model, compiled = filtrax.ExtendedKalmanFilter(), beacon_model(), []

    def listen(event, seconds, **details):
        del seconds, details
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    def fit(num_steps):
        filtrax.fit(
            filt,
            model,
            data,
            loss=filtrax.losses.nll,
            optimizer=optax.adamw(optax.cosine_decay_schedule(1e-3, 100)),
            num_steps=num_steps,
            key=jr.key(0),
        )

    def size():
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of the process, in KB

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        fit(1)
        first, compiled[:] = len(compiled), []
        for _ in range(20):
            fit(1)
        before = size()
        for number in range(180):
            fit(1 + number % 2)  # another number of steps is no other program
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert first > 0
    assert not compiled
    assert size() - before < 30_000
