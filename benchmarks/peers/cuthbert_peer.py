"""cuthbert: the extended Kalman filter in square-root form, in JAX."""

# The library is there only where it is compared with.
# pyright: reportMissingImports=false, reportArgumentType=false

import jax
import jax.numpy as jnp
from cuthbert import filter as run_filter
from cuthbert import smoother as run_smoother
from cuthbert.gaussian import kalman, moments

from filtrax.lab.bench.calls import Call, compiled, value_and_gradient
from filtrax.lab.bench.problems import SWING, Problem, arguments_of
from filtrax.linalg._small import HAS_DEADLOCKS

NAME = "cuthbert"

LARGEST_BATCH = 32 * 8**2
"""Numbers in all covariances of a batch that a CPU is given where larger ones may never return: 32
of state 10 did not. It factorizes batches as `filtrax.linalg._small.HAS_DEADLOCKS` tells not to."""


def make_call(name: str, problem: Problem) -> Call | None:
    """Value and gradient of a batch; None for filters that it does not have."""
    large = problem.sizes.batch * problem.sizes.state**2 > LARGEST_BATCH
    hangs = large and HAS_DEADLOCKS and jax.default_backend() == "cpu"
    if name != "ekf" or hangs:
        return None
    return value_and_gradient(_loss, *arguments_of(problem))


def make_smoothing(problem: Problem) -> dict[str, Call]:
    """Smoothed beliefs of a batch of the linear problem."""
    parameters, readings, _ = arguments_of(problem)
    dynamics, matrix = parameters["dynamics"], parameters["matrix"]
    (observed, size), dtype = matrix.shape, readings.dtype
    factors = [jnp.diag(parameters[name]) for name in ("process_std", "observation_std")]
    zeros = jnp.zeros(size, dtype), jnp.zeros(observed, dtype)

    def move(reading):
        del reading
        return dynamics, zeros[0], factors[0]

    filt = kalman.build_filter(
        m0=zeros[0],
        chol_P0=jnp.eye(size, dtype=dtype),
        get_dynamics_params=move,
        get_observation_params=lambda reading: (matrix, zeros[1], factors[1], reading),
    )
    smoother = kalman.build_smoother(move)

    def one(readings):
        filtered = run_filter(filt, readings, filt.init_prepare())
        found = run_smoother(smoother, filtered, readings)
        # The first of its states is the one before the first reading.
        return found.mean[1:], found.chol_cov[1:], filtered.log_normalizing_constant[-1]

    return {"": compiled(jax.vmap(one), readings)}


def _loss(parameters, readings, keys):
    del keys
    size, dtype = parameters["dynamics"].shape[0], readings.dtype
    factors = [jnp.diag(parameters[name]) for name in ("process_std", "observation_std")]

    def move(state):
        return parameters["dynamics"] @ (state + SWING * jnp.sin(state)), factors[0]

    def observe(state):
        return parameters["matrix"] @ (state + SWING * jnp.sin(state)), factors[1]

    filt = moments.build_filter(
        m0=jnp.zeros(size, dtype),
        chol_P0=jnp.eye(size, dtype=dtype),
        get_dynamics_params=lambda belief, reading: (move, belief.mean),
        get_observation_params=lambda belief, reading: (observe, belief.mean, reading),
    )

    def one(readings):
        found = run_filter(filt, readings, filt.init_prepare())
        return -found.log_normalizing_constant[-1] / readings.shape[0]

    return jax.vmap(one)(readings).mean()
