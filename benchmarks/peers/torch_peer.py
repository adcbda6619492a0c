"""PyTorch without a compiler: filters over a batch, without loops over samples or sequences.

The extended Kalman filter takes its Jacobians from `torch.func`. The unscented one has the points
and weights of ours, and the textbook update. The particle filter is ours: soft resampling of
systematic positions, then process noise, then the likelihood. All compute what the problem asks
for, the log likelihood, and no diagnostics.
"""

# The library is there only where it is compared with.
# pyright: reportMissingImports=false

import math
import os

# Threads that wait for work without sleeping would slow down whoever is timed next.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")

import torch
from torch.func import jacfwd, vmap

from filtrax.lab.bench.calls import Call
from filtrax.lab.bench.problems import SEED, SWING, Problem

NAME = "torch"
SOFTNESS = 0.05
"""The softness of the resampling, the same as ours."""

KAPPA = 0.5
"""The scaling of the sigma points, the same as ours."""


def make_call(name: str, problem: Problem) -> Call | None:
    """Value and gradient of a batch; None for filters that are not written here."""
    losses = {
        "ekf": kalman_loss,
        "ukf": unscented_loss,
        "pf": lambda parameters, readings: particle_loss(
            parameters, readings, problem.sizes.particles
        ),
    }
    if name not in losses:
        return None
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parameters = {
        key: torch.tensor(value, device=device, requires_grad=True)
        for key, value in problem.parameters.items()
    }
    readings = torch.tensor(problem.readings, device=device)
    torch.manual_seed(SEED)
    torch.backends.cuda.matmul.allow_tf32 = False

    def run():
        loss = losses[name](parameters, readings)
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        if device.type == "cuda":
            torch.cuda.synchronize()
        numbers = [gradient.cpu().numpy() for gradient in gradients]
        return loss.item(), dict(zip(parameters, numbers, strict=True))

    return Call(run)


def bend(state):
    """x + s sin x."""
    return state + SWING * torch.sin(state)


def kalman_loss(parameters, readings):
    """-ln p(z_1, ..., z_T) / T of the extended Kalman filter, the mean over the batch."""
    dynamics, matrix = parameters["dynamics"], parameters["matrix"]
    batch, steps, observed = readings.shape
    size = dynamics.shape[0]
    process_noise = torch.diag(parameters["process_std"] ** 2)
    observation_noise = torch.diag(parameters["observation_std"] ** 2)
    move = lambda state: dynamics @ bend(state)  # noqa: E731
    observe = lambda state: matrix @ bend(state)  # noqa: E731
    move_slope, observe_slope = vmap(jacfwd(move)), vmap(jacfwd(observe))
    move_all, observe_all = vmap(move), vmap(observe)
    unit = torch.eye(size, dtype=readings.dtype, device=readings.device)
    mean = torch.zeros(batch, size, dtype=readings.dtype, device=readings.device)
    covariance = unit.expand(batch, size, size)
    total = torch.zeros((), dtype=readings.dtype, device=readings.device)
    for t in range(steps):
        slope = move_slope(mean)
        mean = move_all(mean)
        covariance = slope @ covariance @ slope.mT + process_noise
        slope = observe_slope(mean)
        innovation = readings[:, t] - observe_all(mean)
        factor = torch.linalg.cholesky(slope @ covariance @ slope.mT + observation_noise)
        white = torch.linalg.solve_triangular(factor, innovation[..., None], upper=False)[..., 0]
        logarithm = 2 * torch.log(torch.diagonal(factor, dim1=-2, dim2=-1)).sum(-1)
        constant = observed * math.log(2 * math.pi)
        total = total - 0.5 * ((white**2).sum(-1) + logarithm + constant).mean()
        gain = torch.cholesky_solve(slope @ covariance, factor).mT
        mean = mean + (gain @ innovation[..., None])[..., 0]
        kept = unit - gain @ slope
        covariance = kept @ covariance @ kept.mT + gain @ observation_noise @ gain.mT
    return -total / steps


def unscented_loss(parameters, readings):
    """-ln p(z_1, ..., z_T) / T of the unscented Kalman filter, the mean over the batch."""
    dynamics, matrix = parameters["dynamics"], parameters["matrix"]
    batch, steps, observed = readings.shape
    size = dynamics.shape[0]
    like = {"dtype": readings.dtype, "device": readings.device}
    process_noise = torch.diag(parameters["process_std"] ** 2)
    observation_noise = torch.diag(parameters["observation_std"] ** 2)
    width = size + KAPPA
    weights = torch.tensor([KAPPA / width] + [0.5 / width] * (2 * size), **like)
    unit = torch.eye(size, **like)
    offsets = math.sqrt(width) * torch.cat([torch.zeros(1, size, **like), unit, -unit])
    mean = torch.zeros(batch, size, **like)
    covariance = unit.expand(batch, size, size)
    total = torch.zeros((), **like)
    constant = observed * math.log(2 * math.pi)

    def moments(images):
        middle = (weights[:, None] * images).sum(1)
        deviations = images - middle[:, None]
        return middle, deviations, (weights[:, None] * deviations).mT @ deviations

    for t in range(steps):
        points = mean[:, None] + offsets @ torch.linalg.cholesky(covariance).mT
        mean, _, covariance = moments(bend(points) @ dynamics.mT)
        covariance = covariance + process_noise
        scattered = offsets @ torch.linalg.cholesky(covariance).mT
        expected, deviations, spread = moments(bend(mean[:, None] + scattered) @ matrix.mT)
        cross = (weights[:, None] * scattered).mT @ deviations
        innovation = readings[:, t] - expected
        spread = spread + observation_noise
        factor = torch.linalg.cholesky(spread)
        white = torch.linalg.solve_triangular(factor, innovation[..., None], upper=False)[..., 0]
        logarithm = 2 * torch.log(torch.diagonal(factor, dim1=-2, dim2=-1)).sum(-1)
        total = total - 0.5 * ((white**2).sum(-1) + logarithm + constant).mean()
        gain = torch.cholesky_solve(cross.mT, factor).mT
        mean = mean + (gain @ innovation[..., None])[..., 0]
        covariance = covariance - gain @ spread @ gain.mT
    return -total / steps


def particle_loss(parameters, readings, count):
    """-ln p(z_1, ..., z_T) / T as a particle filter estimates it, the mean over the batch."""
    dynamics, matrix = parameters["dynamics"], parameters["matrix"]
    process_std, observation_std = parameters["process_std"], parameters["observation_std"]
    batch, steps, observed = readings.shape
    size = dynamics.shape[0]
    like = {"dtype": readings.dtype, "device": readings.device}
    states = torch.randn(batch, count, size, **like)
    log_weights = torch.full((batch, count), -math.log(count), **like)
    total = torch.zeros((), **like)
    constant = observed * math.log(2 * math.pi)
    for t in range(steps):
        states, log_weights = resampled(states, log_weights)
        states = bend(states) @ dynamics.mT + process_std * torch.randn(states.shape, **like)
        white = (readings[:, t, None] - bend(states) @ matrix.mT) / observation_std
        spread = 2 * torch.log(observation_std).sum()
        log_weights = log_weights - 0.5 * ((white**2).sum(-1) + spread + constant)
        evidence = torch.logsumexp(log_weights, -1, keepdim=True)
        total = total + evidence.mean()
        log_weights = log_weights - evidence
    return -total / steps


def resampled(states, log_weights):
    """Soft resampling: from a mixture with the uniform distribution, with weights that correct it.

    Karkus, Hsu & Lee 2018; systematic positions.
    """
    batch, count = log_weights.shape
    uniform = torch.full_like(log_weights, math.log(SOFTNESS / count))
    mixed = torch.logaddexp(math.log1p(-SOFTNESS) + log_weights, uniform)
    cumulative = torch.cumsum(torch.exp(mixed.detach()), -1)
    cumulative = cumulative / cumulative[:, -1:]
    offsets = torch.rand(batch, 1, dtype=states.dtype, device=states.device)
    places = (torch.arange(count, dtype=states.dtype, device=states.device) + offsets) / count
    chosen = torch.searchsorted(cumulative, places, right=True).clamp(max=count - 1)
    states = torch.gather(states, 1, chosen[..., None].expand(states.shape))
    ratios = torch.gather(log_weights - mixed, 1, chosen)
    return states, ratios - torch.logsumexp(ratios, -1, keepdim=True)
