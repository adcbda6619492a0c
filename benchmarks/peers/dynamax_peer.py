"""dynamax: extended and unscented Kalman filters in JAX."""

# The library is there only where it is compared with, and says that its numbers are whole.
# pyright: reportMissingImports=false, reportArgumentType=false, reportAttributeAccessIssue=false

import jax
import jax.numpy as jnp
from dynamax.linear_gaussian_ssm import lgssm_smoother, parallel_lgssm_smoother
from dynamax.linear_gaussian_ssm.inference import (
    ParamsLGSSM,
    ParamsLGSSMDynamics,
    ParamsLGSSMEmissions,
    ParamsLGSSMInitial,
)
from dynamax.nonlinear_gaussian_ssm import (
    ParamsNLGSSM,
    UKFHyperParams,
    extended_kalman_filter,
    unscented_kalman_filter,
)

from filtrax.lab.bench.calls import Call, compiled, value_and_gradient
from filtrax.lab.bench.problems import SWING, Problem, arguments_of

NAME = "dynamax"
FILTERS = ("ekf", "ukf")
SCALING = UKFHyperParams(alpha=1.0, beta=0.0, kappa=0.5)  # our defaults
PARTS = []  # the least that it can be asked for: the log likelihood comes with anything
BELIEFS = ["filtered_means", "filtered_covariances"]


def make_call(name: str, problem: Problem) -> Call | None:
    """Value and gradient of a batch; None for filters that it does not have."""
    if name not in FILTERS:
        return None

    def loss(parameters, readings, keys):
        del keys
        results = _filtered(name, parameters, readings, PARTS)
        return -results.marginal_loglik.mean() / readings.shape[1]

    return value_and_gradient(loss, *arguments_of(problem))


def make_run(name: str, problem: Problem) -> Call | None:
    """The beliefs of a batch; None for filters that it does not have."""
    if name not in FILTERS:
        return None
    parameters, readings, _ = arguments_of(problem)

    def beliefs(readings):
        results = _filtered(name, parameters, readings, BELIEFS)
        return results.filtered_means, results.filtered_covariances, results.marginal_loglik

    return compiled(beliefs, readings)


def make_smoothing(problem: Problem) -> dict[str, Call]:
    """Smoothed beliefs of a batch of the linear problem, in turn and by an associative scan."""
    parameters, readings, _ = arguments_of(problem)
    dynamics, matrix = parameters["dynamics"], parameters["matrix"]
    (observed, size), dtype = matrix.shape, readings.dtype
    noises = [jnp.diag(parameters[name] ** 2) for name in ("process_std", "observation_std")]
    model = ParamsLGSSM(
        initial=ParamsLGSSMInitial(
            mean=jnp.zeros(size, dtype), cov=dynamics @ dynamics.T + noises[0]
        ),
        dynamics=ParamsLGSSMDynamics(
            weights=dynamics,
            bias=jnp.zeros(size, dtype),
            input_weights=jnp.zeros((size, 0), dtype),
            cov=noises[0],
        ),
        emissions=ParamsLGSSMEmissions(
            weights=matrix,
            bias=jnp.zeros(observed, dtype),
            input_weights=jnp.zeros((observed, 0), dtype),
            cov=noises[1],
        ),
    )

    def call(smoother):
        def one(readings):
            found = smoother(model, readings)
            return found.smoothed_means, found.smoothed_covariances, found.marginal_loglik

        return compiled(jax.vmap(one), readings)

    return {"": call(lgssm_smoother), " in parallel": call(parallel_lgssm_smoother)}


def _filtered(name, parameters, readings, parts):
    """The results for a batch of readings, with the parts that are asked for."""
    dynamics, matrix = parameters["dynamics"], parameters["matrix"]
    size, dtype = dynamics.shape[0], readings.dtype
    bend = lambda x: x + SWING * jnp.sin(x)  # noqa: E731
    noise = jnp.diag(parameters["process_std"] ** 2)
    # Its first belief is the one before the first observation, and after the first move.
    mean, covariance = _moved(name, lambda x: dynamics @ bend(x), noise, size, dtype)
    model = ParamsNLGSSM(
        initial_mean=mean,
        initial_covariance=covariance,
        dynamics_function=lambda x: dynamics @ bend(x),
        dynamics_covariance=noise,
        emission_function=lambda x: matrix @ bend(x),
        emission_covariance=jnp.diag(parameters["observation_std"] ** 2),
    )

    def one(readings):
        if name == "ekf":
            return extended_kalman_filter(model, readings, output_fields=parts)
        return unscented_kalman_filter(model, readings, SCALING, output_fields=parts)

    return jax.vmap(one)(readings)


def _moved(name, process, noise, size, dtype):
    """The standard normal distribution after the first move."""
    if name == "ekf":
        jacobian = jax.jacfwd(process)(jnp.zeros(size, dtype))
        return process(jnp.zeros(size, dtype)), jacobian @ jacobian.T + noise
    spread = jnp.asarray(size + SCALING.kappa, dtype)
    points = jnp.sqrt(spread) * jnp.concatenate([jnp.eye(size, dtype=dtype)] * 2)
    points = points * jnp.repeat(jnp.asarray([1.0, -1.0], dtype), size)[:, None]
    images = jax.vmap(process)(points)  # that of zero is zero: the process is odd
    return jnp.zeros(size, dtype), images.T @ images / (2 * spread) + noise
