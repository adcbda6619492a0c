"""Objectives: one trajectory in, a number out, which a training stage minimizes.

An objective is any function `(filt, model, trajectory, progress, key) -> number`; `progress`
runs from 0 to 1 over a training stage. Pretraining a sensor or a process is an objective that
does not run the filter. Objectives see plain arrays in the place of given ones (`filtrax.given`).
What else one declares, an `AbstractObjective` says.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool

from filtrax._given import parameters
from filtrax._types import Key, Scalar
from filtrax.filters import AbstractFilter, filter_trajectory
from filtrax.filters._run import sense_all, sense_trajectory
from filtrax.linalg import gaussian_log_density, precise
from filtrax.losses import Loss
from filtrax.noise import DiagonalNoise, FullNoise
from filtrax.sensors import Measurement
from filtrax.spaces import AbstractSpace, Euclidean
from filtrax.state_space import StateSpaceModel
from filtrax.training.protocols import (
    AbstractObjective,
    Objective,
    needs_readings,
    seen_by,
    sees_given,
)
from filtrax.trajectory import Trajectory

Schedule = float | Array | Callable[[Scalar], Scalar]


class Filtering(AbstractObjective):
    """Runs the filter and averages a loss over the labelled steps, as `filtering` makes it."""

    loss: Loss

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """The objective of one trajectory."""
        del progress
        beliefs = filter_trajectory(filt, model, trajectory, key=key).beliefs
        space = model.bind(trajectory.context).state_space
        return mean_loss(self.loss, beliefs, trajectory, space)


def filtering(loss: Loss) -> Objective:
    """The objective that runs the filter and averages a loss over the labelled steps."""
    return Filtering(loss)


def mean_loss(loss: Loss, beliefs: Any, trajectory: Trajectory, space: AbstractSpace) -> Scalar:
    """A loss, averaged over the labelled steps of a trajectory."""
    states, labels = trajectory.known_states()

    def of_step(belief, state, labels):
        return loss(belief, state, space, labels)

    return average(jax.vmap(of_step)(beliefs, states, labels), labels.any(-1))


def measurement_nll(
    filt: AbstractFilter, model: StateSpaceModel, trajectory: Trajectory, progress: Scalar, key: Key
) -> Scalar:
    """-ln p(z_t | z_1, ..., z_{t-1}), averaged over the steps with an observation.

    The marginal likelihood of what was measured: it needs no ground truth.
    """
    del progress
    model, trajectory = sense_trajectory(model, trajectory, key=key)
    log_likelihoods = filter_trajectory(filt, model, trajectory, key=key).info.log_likelihood
    if log_likelihoods is None:
        raise ValueError(
            f"`measurement_nll` needs a filter with a likelihood; {type(filt).__name__} has none."
        )
    return average(-log_likelihoods, _any_seen(trajectory.readings))


def sensor_nll(
    filt: AbstractFilter, model: StateSpaceModel, trajectory: Trajectory, progress: Scalar, key: Key
) -> Scalar:
    """-ln N(h(x_t); z_t, R_t): the measurement against what should be observed.

    Averaged over steps whose state is labelled and of which something was observed. An observation
    that has the name of a component of the state that is undefined in the sequence is left out.
    """
    del filt, progress
    model = model.bind(trajectory.context)
    measurements = sense_all(
        model,
        trajectory.readings,
        trajectory.observed,
        trajectory.inputs,
        trajectory.context,
        key=key,
    )
    states = trajectory.known_states()[0]
    defined = _defined(model, trajectory, measurements.value.shape[-1])

    @precise
    def of_step(measurement, state, inputs):
        expected = model.observe(state, inputs)
        difference = model.observation_space.difference(measurement.value, expected)
        seen = measurement.seen() & defined
        return -gaussian_log_density(difference, measurement.factor, seen)

    losses = jax.vmap(of_step)(measurements, states, trajectory.inputs)
    return average(losses, trajectory.complete() & _any_seen(measurements))


def _any_seen(measurements: Measurement) -> Bool[Array, " t"]:
    """True for steps of which something was observed."""
    return jax.vmap(lambda measurement: measurement.seen().any())(measurements)


def _defined(model: StateSpaceModel, trajectory: Trajectory, size: int) -> Bool[Array, " z"]:
    """Components of an observation that are defined in a sequence.

    An observation is undefined with the component of the state that has its name. Where there are
    no names, everything is defined.
    """
    spaces, undefined = (model.state_space, model.observation_space), trajectory.undefined
    if undefined is None or any(isinstance(space, Euclidean) for space in spaces):
        return jnp.ones(size, bool)
    names, observed = spaces[0].names_of(undefined.size), spaces[1].names_of(size)
    gone = [undefined[names.index(name)] if name in names else False for name in observed]
    return ~jnp.stack([jnp.asarray(is_gone) for is_gone in gone])


class ProcessNll(AbstractObjective):
    """-ln N(x_t; f(x_{t-1}, u_t), Q(x_{t-1}, u_t)): single steps from one true state to the next.

    Averaged over pairs of labelled states; components of x_t that are not labelled are left out.
    """

    @property
    def needs_readings(self) -> bool:
        return False

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """The objective of one trajectory."""
        del filt, progress, key
        model = model.bind(trajectory.context)
        states, labels = trajectory.known_states()
        inputs = jax.tree.map(lambda leaf: leaf[1:], trajectory.inputs)

        @precise
        def of_step(before, after, inputs, labels):
            difference = model.state_space.difference(after, model.process(before, inputs))
            return -gaussian_log_density(difference, model.process_noise(before, inputs), labels)

        losses = jax.vmap(of_step)(states[:-1], states[1:], inputs, labels[1:])
        return average(losses, trajectory.complete()[:-1] & labels[1:].any(-1))


process_nll = ProcessNll()


class SumOfSquares(AbstractObjective):
    """The sum of all squared parameters of the model, for weight decay.

    Offsets of noise count in natural units. Parameters of the filter, like a kernel or the
    recurrent network, do not decay, as in the paper; given arrays are no parameters.
    """

    @property
    def needs_readings(self) -> bool:
        return False

    @property
    def sees_given(self) -> bool:
        return True

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """The same for every trajectory."""
        del filt, trajectory, progress, key
        parts, structure = jax.tree.flatten(model, is_leaf=_is_noise)
        masks = structure.flatten_up_to(parameters(model))
        decaying = [_decaying(part, mask) for part, mask in zip(parts, masks, strict=True)]
        return jnp.stack([(leaf**2).sum() for leaf in jax.tree.leaves(decaying)]).sum()


l2 = SumOfSquares()


def _decaying(part: Any, mask: Any) -> Any:
    """The parameters of a part, those of noise in natural units."""
    if not _is_noise(part):
        return eqx.filter(part, mask)
    has_bias = any(jax.tree.leaves(mask.bias))
    return part.offset if has_bias else None, eqx.filter(part.head, mask.head)


def _is_noise(part: Any) -> bool:
    return isinstance(part, DiagonalNoise | FullNoise)


class LikelihoodContrast(AbstractObjective):
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
        observe = precise(model.observe)
        true = jax.vmap(observe)(trajectory.known_states()[0], trajectory.inputs)
        shape = (true.shape[0], self.num_samples, true.shape[1])
        sign = jnp.where(jnp.arange(self.num_samples) % 2 == 0, 1.0, -1.0).astype(true.dtype)
        near = self.near_std * jr.normal(near_key, shape, true.dtype)
        near = near.at[:, 0].set(0.0)  # the first is exact
        far = self.far_std * jr.normal(far_key, shape, true.dtype)
        far = far + self.far_mean * sign[None, :, None]
        if self.units is not None:
            near, far = (x * np.asarray(self.units, x.dtype)[None, None, :] for x in (near, far))

        @precise
        def scores(measurement, inputs, true, offsets):
            score = lambda offset: model.likelihood(  # noqa: E731
                true + offset, measurement, inputs, model.observation_space
            )
            return jax.vmap(score)(offsets)

        known = (trajectory.readings, trajectory.inputs, true)
        good, bad = jax.vmap(scores)(*known, near), jax.vmap(scores)(*known, far)
        losses = jax.nn.softplus(-good).mean(-1) + jax.nn.softplus(bad).mean(-1)
        return average(losses, trajectory.complete() & _any_seen(trajectory.readings))


class StepSchedule(eqx.Module):
    """A weight that holds until a part of a stage is over, and is zero from then on."""

    progress: float | Array
    weight: float | Array = 1.0

    def __call__(self, progress: Scalar) -> Scalar:
        """The weight at this progress."""
        return jnp.where(progress < self.progress, self.weight, 0.0).astype(progress.dtype)


class Weighted(AbstractObjective):
    """A weighted sum of objectives, as `weighted` makes it."""

    terms: tuple[Objective, ...]
    weights: tuple[Schedule, ...]

    @property
    def needs_readings(self) -> bool:
        return any(map(needs_readings, self.terms))

    @property
    def sees_given(self) -> bool:
        return any(map(sees_given, self.terms))

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """The objective of one trajectory."""
        sensor_key, *keys = jr.split(key, len(self.terms) + 1)
        if self.needs_readings:  # one run of the sensor, and one backward pass, for all terms
            model, trajectory = sense_trajectory(model, trajectory, key=sensor_key)
        total = jnp.zeros_like(progress)
        for term, schedule, key in zip(self.terms, self.weights, keys, strict=True):
            weight = schedule(progress) if callable(schedule) else schedule
            both = seen_by(term, filt, model)
            total = total + weight * term(*both, trajectory, progress, key)
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
