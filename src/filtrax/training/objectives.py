"""Objectives: one trajectory in, a number out. What a training stage minimizes.

An objective is any function `(filt, model, trajectory, progress, key) -> number`; `progress`
runs from 0 to 1 over a training stage. Pretraining a sensor or a process is an objective that
does not run the filter. One that looks at no reading says `looks = False`, so that no sensor has to
run for it.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool

from filtrax.arrays import Key, Scalar
from filtrax.filters import AbstractFilter, filter_trajectory
from filtrax.filters.run import sense_all, sense_trajectory
from filtrax.linalg import gaussian_log_density
from filtrax.losses import Loss
from filtrax.model import StateSpaceModel
from filtrax.noise import DiagonalNoise, FullNoise
from filtrax.spaces import Space
from filtrax.trajectory import Trajectory

Objective = Callable[[AbstractFilter, StateSpaceModel, Trajectory, Scalar, Key], Scalar]
Schedule = float | Array | Callable[[Scalar], Scalar]


def looks(objective: Any) -> bool:
    """Whether an objective, or a score, may look at readings."""
    return getattr(objective, "looks", True)


class Filtering(eqx.Module):
    """Runs the filter and averages a loss over the labelled steps, as `filtering` makes it."""

    loss: Loss

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """The objective of one trajectory."""
        del progress
        beliefs, _ = filter_trajectory(filt, model, trajectory, key=key)
        space = model.bind(trajectory.context).state_space
        return mean_loss(self.loss, beliefs, trajectory, space)


def filtering(loss: Loss) -> Objective:
    """The objective that runs the filter and averages a loss over the labelled steps."""
    return Filtering(loss)


def mean_loss(loss: Loss, beliefs: Any, trajectory: Trajectory, space: Space) -> Scalar:
    """A loss, averaged over the labelled steps of a trajectory."""
    states, labels = trajectory.known_states()

    def one(belief, state, labels):
        return loss(belief, state, space, labels)

    return average(jax.vmap(one)(beliefs, states, labels), labels.any(-1))


def measurement_nll(
    filt: AbstractFilter, model: StateSpaceModel, trajectory: Trajectory, progress: Scalar, key: Key
) -> Scalar:
    """-ln p(z_t | z_1, ..., z_{t-1}), averaged over the steps with an observation.

    The marginal likelihood of what was measured: it needs no ground truth.
    """
    del progress
    model, trajectory = sense_trajectory(model, trajectory, key=key)
    _, info = filter_trajectory(filt, model, trajectory, key=key)
    if info.log_likelihood is None:
        raise ValueError(
            f"`measurement_nll` needs a filter with a likelihood; {type(filt).__name__} has none."
        )
    return average(-info.log_likelihood, jax.vmap(lambda m: m.seen().any())(trajectory.readings))


def sensor_nll(
    filt: AbstractFilter, model: StateSpaceModel, trajectory: Trajectory, progress: Scalar, key: Key
) -> Scalar:
    """-ln N(h(x_t); z_t, R_t): the measurement against what should be observed.

    Averaged over steps whose state is labelled and of which something was observed. An observation
    that has the name of a component that means nothing in the sequence is left out.
    """
    del filt, progress
    model = model.bind(trajectory.context)
    measurements = sense_all(
        model, trajectory.readings, trajectory.observed, trajectory.context, key=key
    )
    states, meaningful = trajectory.known_states()[0], _meaningful(model, trajectory)

    def one(measurement, state):
        difference = model.observation_space.difference(measurement.value, model.observe(state))
        seen = measurement.seen() & meaningful
        return -gaussian_log_density(difference, measurement.covariance, seen)

    counts = trajectory.complete() & jax.vmap(lambda m: m.seen().any())(measurements)
    return average(jax.vmap(one)(measurements, states), counts)


def _meaningful(model: StateSpaceModel, trajectory: Trajectory) -> Bool[Array, " z"]:
    """Which components of an observation mean something in a sequence."""
    names, observed = model.state_space.names, model.observation_space.names
    if trajectory.meaningless is None:
        return jnp.ones(len(observed), bool)
    gone = [trajectory.meaningless[names.index(n)] if n in names else False for n in observed]
    return ~jnp.stack([jnp.asarray(each) for each in gone])


class ProcessNll(eqx.Module):
    """-ln N(x_t; f(x_{t-1}, u_t), Q(x_{t-1}, u_t)): single steps from one true state to the next.

    Averaged over pairs of labelled states; components of x_t that are not labelled are left out.
    """

    looks: ClassVar[bool] = False

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """The objective of one trajectory."""
        del filt, progress, key
        model = model.bind(trajectory.context)
        states, labels = trajectory.known_states()
        controls = jax.tree.map(lambda leaf: leaf[1:], trajectory.controls)

        def one(before, after, control, labels):
            difference = model.state_space.difference(after, model.process(before, control))
            covariance = model.process_noise.covariance(before, control)
            return -gaussian_log_density(difference, covariance, labels)

        losses = jax.vmap(one)(states[:-1], states[1:], controls, labels[1:])
        return average(losses, trajectory.complete()[:-1] & labels[1:].any(-1))


process_nll = ProcessNll()


class SumOfSquares(eqx.Module):
    """The sum of all squared parameters of the model, for weight decay.

    Offsets of noise count in natural units. Parameters of the filter, like a kernel or the
    recurrent network, do not decay, as in the paper.
    """

    looks: ClassVar[bool] = False

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """The same for every trajectory."""
        del filt, trajectory, progress, key
        parts = jax.tree.leaves(model, is_leaf=_is_noise)
        inside = [(part.offset, part.head) if _is_noise(part) else part for part in parts]
        leaves = jax.tree.leaves(eqx.filter(inside, eqx.is_inexact_array))
        return jnp.stack([(leaf**2).sum() for leaf in leaves]).sum()


l2 = SumOfSquares()


def _is_noise(part: Any) -> bool:
    return isinstance(part, DiagonalNoise | FullNoise)


class LikelihoodContrast(eqx.Module):
    """Pretrains a learned likelihood: it learns to tell near observations from far ones.

    Binary cross-entropy with logits on observations that are drawn close to the true one
    (label 1: N(0, near_std²) added) and far from it (label 0: N(±far_mean, far_std²)), all counted
    in `units`, one for each component of an observation, if these differ. Its optimum is a log
    density ratio, which is what the filter adds to its log weights.
    (Kloss et al. 2021, supplement, treat the output as a probability here and as a logarithm in
    the filter; this is the consistent form.)
    """

    near_std: float
    far_mean: float
    far_std: float
    num_samples: int = eqx.field(default=6, static=True)
    units: tuple[float, ...] | None = eqx.field(default=None, static=True)

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """The objective of one trajectory."""
        del filt, progress
        sensor_key, near_key, far_key = jr.split(key, 3)
        model, trajectory = sense_trajectory(model, trajectory, key=sensor_key)
        model = model.bind(trajectory.context)
        true = jax.vmap(model.observe)(trajectory.known_states()[0])
        shape = (true.shape[0], self.num_samples, true.shape[1])
        sign = jnp.where(jnp.arange(self.num_samples) % 2 == 0, 1.0, -1.0).astype(true.dtype)
        near = self.near_std * jr.normal(near_key, shape, true.dtype)
        near = near.at[:, 0].set(0.0)  # one is exact
        far = self.far_std * jr.normal(far_key, shape, true.dtype)
        far = far + self.far_mean * sign[None, :, None]
        if self.units is not None:
            near, far = (x * np.asarray(self.units, x.dtype)[None, None, :] for x in (near, far))

        def scores(measurement, true, offsets):
            score = lambda offset: model.likelihood(  # noqa: E731
                true + offset, measurement, model.observation_space
            )
            return jax.vmap(score)(offsets)

        good = jax.vmap(scores)(trajectory.readings, true, near)
        bad = jax.vmap(scores)(trajectory.readings, true, far)
        losses = jax.nn.softplus(-good).mean(-1) + jax.nn.softplus(bad).mean(-1)
        seen = jax.vmap(lambda m: m.seen().any())(trajectory.readings)
        return average(losses, trajectory.complete() & seen)


class Until(eqx.Module):
    """A weight that holds until a part of a stage is over, and is zero from then on."""

    progress: float | Array
    weight: float | Array = 1.0

    def __call__(self, progress: Scalar) -> Scalar:
        """The weight at this progress."""
        return jnp.where(progress < self.progress, self.weight, 0.0).astype(progress.dtype)


class Weighted(eqx.Module):
    """A weighted sum of objectives, as `weighted` makes it."""

    terms: tuple[Objective, ...]
    weights: tuple[Schedule, ...]

    @property
    def looks(self) -> bool:
        """Whether any of them looks at readings."""
        return any(looks(term) for term in self.terms)

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """The objective of one trajectory."""
        sensor_key, *keys = jr.split(key, len(self.terms) + 1)
        if self.looks:  # one run of the sensor, and one backward pass through it, for all terms
            model, trajectory = sense_trajectory(model, trajectory, key=sensor_key)
        total = jnp.zeros_like(progress)
        for term, schedule, key in zip(self.terms, self.weights, keys, strict=True):
            weight = schedule(progress) if callable(schedule) else schedule
            total = total + weight * term(filt, model, trajectory, progress, key)
        return total


def weighted(terms: Mapping[Objective, Schedule]) -> Weighted:
    """A weighted sum of objectives; a weight is a number or a function of the progress."""
    if not terms:
        raise ValueError("`weighted` needs at least one objective, got none.")
    return Weighted(tuple(terms), tuple(terms.values()))


def average(values: Array, mask: Array) -> Scalar:
    """The mean over the mask, and zero where nothing counts: no labels, no gradient."""
    total = jnp.where(mask, values, 0.0).sum()
    return total / jnp.maximum(mask.sum(), 1).astype(total.dtype)
