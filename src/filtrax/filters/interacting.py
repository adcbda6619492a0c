"""The interacting-multiple-model filter."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._stacking import map_trees
from filtrax._types import Inputs, Key, Observation
from filtrax.beliefs import Gaussian, GaussianMixture
from filtrax.filters.base import AbstractBayesFilter, Info
from filtrax.filters.extended import ExtendedKalmanFilter
from filtrax.sensors import Measurement
from filtrax.spaces import AbstractSpace
from filtrax.state_space import StateSpaceModel, check_model
from filtrax.switching import Mode, SwitchingProcess, in_mode, switching


class PredictedModes(eqx.Module):
    """Predictions by the filters of all modes, on a leading axis, and chances of the modes."""

    each: Any
    log_weights: Float[Array, " m"]

    @property
    def belief(self) -> GaussianMixture:
        """The predictions as a belief."""
        return GaussianMixture(getattr(self.each, "belief", self.each), self.log_weights)


class IMMFilter(AbstractBayesFilter[GaussianMixture, PredictedModes]):
    """One Gaussian for each mode of a switching process, mixed before each step.

    With weights wᵢ and Gaussians N(μᵢ, Σᵢ) of the modes i before the step, and Pᵢⱼ the probability
    to go from mode i to mode j:

        w̄ⱼ = Σᵢ wᵢ Pᵢⱼ,   wᵢ|ⱼ = wᵢ Pᵢⱼ / w̄ⱼ
        μ⁰ⱼ = Σᵢ wᵢ|ⱼ μᵢ,   Σ⁰ⱼ = Σᵢ wᵢ|ⱼ (Σᵢ + (μᵢ - μ⁰ⱼ)(μᵢ - μ⁰ⱼ)ᵀ)
        N(μⱼ, Σⱼ) and the likelihood Λⱼ: a step of the filter of mode j, from N(μ⁰ⱼ, Σ⁰ⱼ)
        wⱼ = w̄ⱼ Λⱼ / Σₖ w̄ₖ Λₖ

    (Blom & Bar-Shalom 1988; Bar-Shalom, Li & Kirubarajan 2001, section 11.6). Probabilities that
    depend on the state are taken at the mean of the mode they start from.

    The modes belong to the model, see `SwitchingProcess`. A model without modes has one, and the
    filter is then the inner one. All modes use the same random numbers, if any, so that their
    likelihoods differ by their models alone.

    **Attributes:**

    - `inner`: the filter of each mode; its belief must be a `Gaussian`.
    """

    inner: AbstractBayesFilter = ExtendedKalmanFilter()

    def init(
        self, model: StateSpaceModel, prior: Gaussian, *, key: Key | None = None
    ) -> GaussianMixture:
        process = switching(model)
        components = map_trees(
            lambda mode: self.inner.init(mode[0], prior, key=key), modes_of(model, process)
        )
        if not isinstance(components, Gaussian):
            raise TypeError(
                "`inner` must be a filter whose belief is a `Gaussian`, got "
                f"{type(self.inner).__name__}, whose belief is {type(components).__name__}."
            )
        return GaussianMixture(components, process.initial_log_weights(prior.mean.dtype))

    def predict(
        self,
        model: StateSpaceModel,
        belief: GaussianMixture,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> PredictedModes:
        process, space = switching(model), model.state_space
        log_matrix = log_transitions(process, belief.components.mean, inputs)
        log_weights, log_mixing = mix(belief.log_weights, log_matrix)

        def mixed(log_weights):
            return GaussianMixture(belief.components, log_weights).moments(space)

        def predicted(mode, before):
            return self.inner.predict(mode[0], before, inputs, key=key)

        each = map_trees(predicted, modes_of(model, process), jax.vmap(mixed)(log_mixing.T))
        return PredictedModes(each, log_weights)

    def update(
        self,
        model: StateSpaceModel,
        predicted: PredictedModes,
        measurement: Measurement,
        inputs: Inputs,
        *,
        key: Key | None = None,
    ) -> tuple[GaussianMixture, Info]:
        def updated(mode, prediction):
            in_this, own = mode
            measured = own.measured(measurement)
            return self.inner.update(in_this, prediction, measured, inputs, key=key)

        components, infos = map_trees(updated, modes_of(model, switching(model)), predicted.each)
        if infos.log_likelihood is None:
            raise TypeError(
                "`inner` must be a filter that reports the likelihood of measurements: "
                f"{type(self.inner).__name__} does not."
            )
        log_joint = predicted.log_weights + infos.log_likelihood
        log_evidence = jax.nn.logsumexp(log_joint)
        belief = GaussianMixture(components, log_joint - log_evidence)
        innovation = _innovation(model.observation_space, infos, jnp.exp(predicted.log_weights))
        # Weights may be zero, their logarithms -∞.
        finite = infos.finite.all() & jnp.isfinite(log_evidence)
        fine = None if infos.resolved is None else infos.resolved.all()
        return belief, Info(finite, log_evidence, None, *innovation, resolved=fine)


def mix(
    log_weights: Float[Array, " m"], log_transitions: Float[Array, "m m"]
) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
    """ln w̄ⱼ = ln Σᵢ wᵢ Pᵢⱼ, and ln wᵢ|ⱼ = ln (wᵢ Pᵢⱼ / w̄ⱼ) with a column for each mode j.

    A mode that nothing leads to has no mixture to start from, and starts from its own Gaussian.
    Entries are -∞ where a probability is zero, and no gradient passes there.
    """
    log_joint = log_weights[:, None] + log_transitions
    reached = (log_joint != -jnp.inf).any(0)  # what is not a number counts, and shows
    # The logarithm of a sum of zeros has no gradient, so such sums are not computed at all.
    own = jnp.where(jnp.eye(log_weights.size, dtype=bool), 0.0, -jnp.inf).astype(log_joint.dtype)
    columns = jnp.where(reached[None, :], log_joint, own)
    sums = jax.nn.logsumexp(columns, axis=0)
    return jnp.where(reached, sums, -jnp.inf), columns - sums[None, :]


ModeModel = tuple[StateSpaceModel, Mode]
"""The model as it is in a mode, and the mode, which knows how it changes measurements."""


def modes_of(model: StateSpaceModel, process: SwitchingProcess) -> list[ModeModel]:
    """The model in each of its modes."""
    return [(in_mode(model, mode), mode) for mode in process.modes]


def check_modes(
    model: StateSpaceModel, prior: Gaussian, inputs: Inputs, measurement: Measurement
) -> None:
    """Raises unless the parts of every mode agree on their shapes, for one step."""

    def check(mode):
        in_this, own = mode
        check_model(in_this, prior, inputs, own.measured(measurement))

    # Modes that are one program are checked once.
    jax.eval_shape(lambda: map_trees(check, modes_of(model, switching(model))))


def log_transitions(
    process: SwitchingProcess, means: Float[Array, "m x"], inputs: Inputs
) -> Float[Array, "m m"]:
    """ln Pᵢⱼ, each row at the mean of its own mode."""
    matrices = jax.vmap(lambda mean: process.transitions(mean, inputs))(means)
    return jax.vmap(lambda matrix, row: matrix[row])(matrices, jnp.arange(len(process.modes)))


def _innovation(
    space: AbstractSpace, infos: Info, weights: Float[Array, " m"]
) -> tuple[Observation | None, Float[Array, "z z"] | None]:
    """z - ẑ and S of the mixture of what the modes expect."""
    each, covariances = infos.innovation, infos.innovation_covariance
    if each is None or covariances is None:
        return None, None
    # About one of them, as innovations of angles may lie on both sides of half a turn.
    reference = each[jnp.argmax(weights)]
    offsets = jax.vmap(space.difference, (0, None))(each, reference)
    mean = weights @ offsets
    spread = offsets - mean[None, :]
    covariance = jnp.tensordot(weights, covariances, 1) + (weights[:, None] * spread).T @ spread
    return space.difference(reference + mean, jnp.zeros_like(mean)), covariance
