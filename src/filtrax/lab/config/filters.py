"""Settings of filters in configuration files."""

import abc
import dataclasses
import math
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from filtrax._given import given_field, unwrap
from filtrax._types import Key
from filtrax.filters import (
    AbstractBayesFilter,
    AbstractFilter,
    AdaptiveKernel,
    ExtendedKalmanFilter,
    IMMFilter,
    LearnedScaling,
    MonteCarloUnscentedKalmanFilter,
    ParticleFilter,
    RecurrentFilter,
    Scaling,
    UnscentedKalmanFilter,
)
from filtrax.filters.unscented import CLOSEST, AbstractScaling
from filtrax.lab.registry import family, register
from filtrax.lab.tasks import AbstractTask
from filtrax.likelihoods import LearnedLikelihood
from filtrax.losses import Loss, kernel_nll, mixture_nll, nll
from filtrax.networks import Features
from filtrax.noise import FixedNoise, constant_noise
from filtrax.resampling import EverySteps, Soft
from filtrax.state_space import StateSpaceModel
from filtrax.switching import SwitchingProcess
from filtrax.trajectory import Trajectory

MOST_ITERATIONS = 100
"""The most iterations of an update, each of which is a part of the compiled program."""


@family
@dataclasses.dataclass(frozen=True)
class AbstractFilterSettings(abc.ABC):
    """The settings of a filter, which a configuration file chooses by `kind`."""

    kind: ClassVar[str]

    @abc.abstractmethod
    def build(
        self, task: AbstractTask, model: StateSpaceModel, example: Trajectory, *, key: Key
    ) -> AbstractFilter:
        """Builds the filter for training with a task's model.

        `example` is one trajectory of the data, for its shapes.
        """

    def for_test(self, filt: Any) -> Any:
        """Returns the trained filter with the settings for tests, like more samples."""
        return filt

    def unused(self, model: StateSpaceModel) -> tuple[str, ...]:
        """Names the parts of the model that the filter does not use, as in "sensor.noise"."""
        del model
        return ()

    @property
    def program(self) -> "AbstractFilterSettings":
        """These settings with defaults for all numbers that compiled programs take as arguments.

        Filters with equal `program` compile to the same program, and can train as one ensemble.
        """
        return self

    @property
    def density(self) -> Loss:
        """The negative log density of a state under a belief of this filter."""
        return nll


@register
@dataclasses.dataclass(frozen=True)
class Ekf(AbstractFilterSettings):
    """The extended Kalman filter.

    - `iterations`: the number of linearizations per update.
    - `cut_jacobian_gradients`: cut gradients at Jacobians, as in the paper.
    """

    kind: ClassVar[str] = "ekf"
    iterations: int = 1
    cut_jacobian_gradients: bool = False

    def __post_init__(self):
        _check_positive(self, "iterations")
        if self.iterations > MOST_ITERATIONS:
            raise ValueError(
                f"iterations must be at most {MOST_ITERATIONS}, got {self.iterations}."
            )

    def build(
        self, task: AbstractTask, model: StateSpaceModel, example: Trajectory, *, key: Key
    ) -> AbstractFilter:
        del task, model, example, key
        return ExtendedKalmanFilter(
            iterations=self.iterations, cut_jacobian_gradients=self.cut_jacobian_gradients
        )


class SweptScaling(AbstractScaling):
    """Scaling with traced numbers, so that new values do not recompile.

    Only for numbers whose points are well apart and whose weights are not negative, because both
    are decided while tracing.
    """

    alpha: Array = given_field(converter=jnp.asarray)
    kappa: Array = given_field(converter=jnp.asarray)
    beta: Array = given_field(converter=jnp.asarray)

    def parameters(self, size: int, dtype) -> tuple[Array, Array, Array]:
        return Scaling(self.alpha, self.kappa, self.beta).parameters(size, dtype)

    def distance(self, size: int) -> None:
        del size

    def subtracts(self, size: int) -> bool:
        del size
        return False


@register
@dataclasses.dataclass(frozen=True)
class Ukf(AbstractFilterSettings):
    """The unscented Kalman filter.

    - `alpha`, `kappa`: the spread of the sigma points.
    - `beta`: the additional weight of the centre in covariances.
    - `learned`: train these three numbers.
    - `redraw`: draw new points after the prediction; false is the paper's form.
    - `drop_negative_centre`: leave a centre with negative weight out of covariances.
    """

    kind: ClassVar[str] = "ukf"
    alpha: float = 1.0
    kappa: float = 0.5
    beta: float = 0.0
    learned: bool = False
    redraw: bool = True
    drop_negative_centre: bool = False

    @property
    def program(self) -> "Ukf":
        return dataclasses.replace(self, alpha=1.0, kappa=0.0, beta=0.0) if self._swept else self

    @property
    def _swept(self) -> bool:
        """True if points are well apart and no weight is negative, for states of any size."""
        sums_of_squares = self.alpha == 1 and self.kappa >= 0 and self.beta >= 0
        return self.learned or (
            self.alpha >= CLOSEST and (sums_of_squares or self.beta >= self.alpha**2)
        )

    def build(
        self, task: AbstractTask, model: StateSpaceModel, example: Trajectory, *, key: Key
    ) -> AbstractFilter:
        del task, model, key
        size = example.initial.size
        if not (self.alpha > 0 and size + self.kappa > 0):
            raise ValueError(
                f"filter.alpha and {size} + filter.kappa must be positive: "
                f"got {self.alpha} and {size + self.kappa}."
            )
        numbers = {"alpha": self.alpha, "kappa": self.kappa, "beta": self.beta}
        if self.learned:
            scaling = LearnedScaling(size, **numbers)
        else:
            scaling = SweptScaling(**numbers) if self._swept else Scaling(**numbers)
        return UnscentedKalmanFilter(
            scaling=scaling,
            redraw=self.redraw,
            drop_negative_centre=self.drop_negative_centre,
        )


@register
@dataclasses.dataclass(frozen=True)
class Mcukf(AbstractFilterSettings):
    """The Monte Carlo unscented Kalman filter.

    - `num_samples`, `num_test_samples`: the number of samples in training and validation, and in
      tests.
    - `redraw`: draw new samples after the prediction; false is the paper's form.
    """

    kind: ClassVar[str] = "mcukf"
    num_samples: int = 100
    num_test_samples: int = 500
    redraw: bool = True

    def __post_init__(self):
        _check_positive(self, "num_samples", "num_test_samples")

    def build(
        self, task: AbstractTask, model: StateSpaceModel, example: Trajectory, *, key: Key
    ) -> AbstractFilter:
        del task, model, example, key
        return MonteCarloUnscentedKalmanFilter(num_samples=self.num_samples, redraw=self.redraw)

    def for_test(self, filt: Any) -> Any:
        return dataclasses.replace(filt, num_samples=self.num_test_samples)


@register
@dataclasses.dataclass(frozen=True)
class Imm(AbstractFilterSettings):
    """The interacting-multiple-model filter, with one filter for each mode of the model.

    - `inner`: the filter of each mode.
    """

    kind: ClassVar[str] = "imm"
    inner: Ekf | Ukf | Mcukf = dataclasses.field(default_factory=Ekf)

    @property
    def program(self) -> "Imm":
        inner = self.inner.program
        assert isinstance(inner, Ekf | Ukf | Mcukf)
        return dataclasses.replace(self, inner=inner)

    def build(
        self, task: AbstractTask, model: StateSpaceModel, example: Trajectory, *, key: Key
    ) -> AbstractFilter:
        if not isinstance(model.process, SwitchingProcess):
            raise ValueError(
                'filter.kind "imm" needs a model with modes, and the model of this task has none. '
                f'Choose filter.kind "{self.inner.kind}", or settings of the model with modes.'
            )
        inner = self.inner.build(task, model, example, key=key)
        assert isinstance(inner, AbstractBayesFilter)
        return IMMFilter(inner)

    def for_test(self, filt: Any) -> Any:
        return dataclasses.replace(filt, inner=self.inner.for_test(filt.inner))

    @property
    def density(self) -> Loss:
        return mixture_nll


@register
@dataclasses.dataclass(frozen=True)
class Particle(AbstractFilterSettings):
    """The particle filter. A learned likelihood is a setting of the model.

    - `num_particles`, `num_test_particles`: the number of particles in training and validation, and
      in tests.
    - `belief`: the density of losses and metrics: a mixture of Gaussians (the paper's dPF-M), or
      one Gaussian (dPF-G) with the covariance of that mixture, which is never singular.
    - `kernel_std`: the standard deviation of a particle's kernel in every component.
    - `kernel_width`: the start of the part of the kernel that grows with the spread of the
      particles, in units of Silverman's rule; 0 for none.
    - `learned_kernel`: train the kernel.
    - `soft_resampling`: the share of the uniform distribution in soft resampling.
    - `resample_every`: the number of steps between two resamplings.
    - `whiten_noise`: whiten the sampled process noise, as in the paper.
    """

    kind: ClassVar[str] = "particle"
    num_particles: int = 100
    num_test_particles: int = 500
    belief: Literal["mixture", "gaussian"] = "mixture"
    kernel_std: float = 1.0
    kernel_width: float = 0.0
    learned_kernel: bool = False
    soft_resampling: float = 0.05
    resample_every: int = 1
    whiten_noise: bool = False

    def __post_init__(self):
        _check_positive(self, "num_particles", "num_test_particles", "kernel_std", "resample_every")
        if self.kernel_width < 0 or (self.kernel_width and not self.learned_kernel):
            raise ValueError(
                "kernel_width must be 0, or positive with a kernel that is trained (learned_kernel "
                f"= true), got {self.kernel_width}."
            )
        if not 0 <= self.soft_resampling <= 1:
            raise ValueError(
                f"soft_resampling must be between 0 and 1, got {self.soft_resampling}."
            )

    @property
    def program(self) -> "Particle":
        changes = {"resample_every": min(self.resample_every, 2), "kernel_std": 1.0}
        changes |= {"kernel_width": 1.0 if self.kernel_width else 0.0, "soft_resampling": 0.0}
        return dataclasses.replace(self, **changes)

    @property
    def density(self) -> Loss:
        return mixture_nll if self.belief == "mixture" else kernel_nll

    def build(
        self, task: AbstractTask, model: StateSpaceModel, example: Trajectory, *, key: Key
    ) -> AbstractFilter:
        del task, model, key
        # Arrays are traced, so that new values do not recompile.
        resampler = Soft(jnp.asarray(self.soft_resampling))
        if self.resample_every > 1:
            resampler = EverySteps(jnp.asarray(self.resample_every), resampler)
        kernel = constant_noise(jnp.full(example.initial.size, self.kernel_std))
        if not self.learned_kernel:
            kernel = FixedNoise(kernel)
        if self.kernel_width:
            kernel = AdaptiveKernel(kernel, jnp.log(jnp.asarray(self.kernel_width)))
        return ParticleFilter(self.num_particles, resampler, kernel, self.whiten_noise)

    def for_test(self, filt: Any) -> Any:
        return dataclasses.replace(filt, num_particles=self.num_test_particles)

    def unused(self, model: StateSpaceModel) -> tuple[str, ...]:
        # Learned likelihoods read the features of the sensor's encoder.
        learned = isinstance(model.likelihood, LearnedLikelihood)
        return ("sensor.head", "sensor.noise") if learned else ()


@register
@dataclasses.dataclass(frozen=True)
class Lstm(AbstractFilterSettings):
    """The recurrent baseline, a network instead of a filter.

    - `num_layers`, `hidden_size`: the number of LSTM layers, and the size of each.
    - `residual`: predict the change of the state.
    - `std`: the standard deviation of the belief before training.
    """

    kind: ClassVar[str] = "lstm"
    num_layers: int = 1
    hidden_size: int = 512
    residual: bool = False
    std: float = 10.0

    def __post_init__(self):
        _check_positive(self, "num_layers", "hidden_size", "std")

    def build(
        self, task: AbstractTask, model: StateSpaceModel, example: Trajectory, *, key: Key
    ) -> AbstractFilter:
        first = (example.readings, example.inputs)
        reading, inputs = jax.tree.map(lambda leaf: leaf[0], first)
        sensor = unwrap(model.sensor)
        measurement = eqx.filter_eval_shape(sensor, reading, inputs, example.context, key=key)
        features = jax.tree.leaves(measurement.features)
        return RecurrentFilter(
            task.state_features,
            sum(leaf.size for leaf in features) or measurement.value.size,
            observation=task.observation_features or Features(model.observation_space),
            input_size=sum(leaf.size for leaf in jax.tree.leaves(inputs)),
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            residual=self.residual,
            std=self.std,
            key=key,
        )

    def unused(self, model: StateSpaceModel) -> tuple[str, ...]:
        del model
        return ("sensor.head", "sensor.noise", "process", "process_noise")


def _check_positive(settings: Any, *names: str) -> None:
    for name in names:
        if not 0 < getattr(settings, name) < math.inf:
            raise ValueError(f"{name} must be positive, got {getattr(settings, name)}.")
