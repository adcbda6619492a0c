"""The models of the pushing task: process and sensor (Kloss et al. 2021)."""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from filtrax._types import Key
from filtrax.lab.tasks.base import AbstractModelSettings
from filtrax.lab.tasks.parts import AbstractNoiseSettings, AbstractSensorSettings
from filtrax.lab.tasks.pushing.encoders import PushingEncoder
from filtrax.lab.tasks.pushing.heads import VARIANCE_FLOOR as SENSOR_FLOOR
from filtrax.lab.tasks.pushing.heads import (
    learned_likelihood,
    likelihood_encoding,
    no_encoding,
    observed_value,
    recurrent_encoding,
    sensor_noise,
)
from filtrax.lab.tasks.pushing.network import PushingNetwork
from filtrax.lab.tasks.pushing.pretraining import lessons
from filtrax.lab.tasks.pushing.process import (
    InContact,
    LearnedPush,
    ModeHead,
    PushHead,
    equations_of_pushing,
    free_motion,
)
from filtrax.lab.tasks.pushing.reference import ReferenceProcess, ReferenceSensor, reference_noise
from filtrax.lab.tasks.pushing.space import (
    RANGE_SCALES,
    observation_features,
    observe,
    state_features,
)
from filtrax.likelihoods import AbstractLikelihood, GaussianLikelihood
from filtrax.networks import Features, Perceptron, Precision
from filtrax.noise import (
    AbstractNoise,
    FeatureHead,
    FixedNoise,
    constant_noise,
    head_size,
    heteroscedastic_noise,
)
from filtrax.sensors import NetworkSensor, Sensor
from filtrax.state_space import StateSpaceModel
from filtrax.switching import LearnedTransitions, Mode, SwitchingProcess

if TYPE_CHECKING:
    from filtrax.lab.tasks.pushing.task import PushingTask

PROCESS_FLOOR = (1e-3, 1e-3, 1e-3, 1e-5, 1e-5, 1e-3, 1e-3, 1e-5, 1e-5, 1e-5)
"""The smallest variances of the process noise, in squares of the components' units.

In the paper's code all are 1e-5. But the equations of pushing correlate poses and contact points,
whose variances are up to 25 mm², and beside these, float32 does not distinguish 1e-5 mm² from zero.
The smallest variance of the sensor is `SENSOR_FLOOR`. Hand-tuned noise must be above both, too."""

PAPER_PROCESS_STDS = (0.23, 0.23, 0.37, 0.01, 0.01, 0.7, 0.7, 0.1, 0.1, 0.13)
PAPER_SENSOR_STDS = (3.0, 2.5, 8.8, 3.3, 1.0, 0.1, 0.1, 0.3)
"""The paper's hand-tuned noise."""

PUSH_ENTRIES = 2
MODE_START = ((0.5, 0.5), (0.5, 0.5))
"""Initial transition probabilities between free motion and contact, without information on s."""

Dependence = Literal["constant", "heteroscedastic", "hand-tuned", "paper"]
Ten = tuple[float, float, float, float, float, float, float, float, float, float]
Eight = tuple[float, float, float, float, float, float, float, float]

ONES: Ten = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
"""The paper's initial value of all standard deviations."""


@dataclasses.dataclass(frozen=True)
class PushingModel(AbstractModelSettings):
    """The settings of a model of the pushing task.

    Numbers are in the units of the state (mm and degrees; l in cm²). The initial standard
    deviations are the paper's.

    - `process`: a "learned" network of state and push, the "analytical" equations of quasi-static
      pushing, or "reference", the simulator without disturbances, which knows the object.
    - `process_noise`, `sensor_noise`: "hand-tuned" is not trained and has no floor; "paper" is
      hand-tuned with the paper's numbers. The process noise "reference" is that of the simulator,
      and is not trained.
    - `sensor`: the paper's networks, or "reference", which reads all visible quantities with an
      accuracy of a pixel.
    - `covariance`: the shape of Q and R.
    - `process_stds`, `sensor_stds`: the standard deviations of Q and R before training.
    - `likelihood`: a "learned" one sees an encoding of the image, and the predicted observation.
    - `encoding`: the encoding of the image in measurements, "none" or the input of a "recurrent"
      network.
    - `precision`: the precision of images and activations in the sensor's convolutions.
    - `friction_input`: let process noise depend on l, too, against the paper's advice.
    - `modes`: "contact" makes a process with two modes, free motion and contact, for filters that
      switch between them. Each has its own process noise.
    """

    process: Literal["learned", "analytical", "reference"] = "learned"
    process_noise: Dependence | Literal["reference"] | AbstractNoiseSettings = "heteroscedastic"
    sensor: Literal["paper", "reference"] | AbstractSensorSettings = "paper"
    sensor_noise: Dependence | AbstractNoiseSettings = "heteroscedastic"
    covariance: Literal["diagonal", "full"] = "diagonal"
    likelihood: Literal["gaussian", "learned"] = "gaussian"
    encoding: Literal["none", "recurrent"] = "none"
    precision: Precision = "full"
    friction_input: bool = False
    modes: Literal["none", "contact"] = "none"
    process_stds: Ten = ONES
    sensor_stds: Eight = ONES[:8]

    def __post_init__(self):
        for name, floors in (("process", PROCESS_FLOOR), ("sensor", (SENSOR_FLOOR,) * 8)):
            stds = getattr(self, f"{name}_stds")
            pairs = zip(stds, floors, strict=True)
            if not all(std > 0 and std**2 >= floor for std, floor in pairs):
                smallest = ", ".join(f"{floor**0.5:.4f}" for floor in floors)
                raise ValueError(
                    f"{name}_stds must be positive and at least {smallest}, the roots of the "
                    f"smallest variances, got {stds}."
                )
        if self.likelihood == "learned" and (self.sensor, self.encoding) != ("paper", "none"):
            raise ValueError(
                'likelihood "learned" has an encoding of images of its own: it needs sensor '
                f'"paper" and encoding "none", got {self.sensor!r} and {self.encoding!r}.'
            )

    @property
    def learns_likelihood(self) -> bool:
        return self.likelihood != "gaussian"

    @property
    def program(self) -> "PushingModel":
        """These settings with defaults for all numbers that compiled programs take as arguments.

        Models with equal `program` can train as one ensemble.
        """
        fixed = {
            name: "hand-tuned"
            for name in ("process_noise", "sensor_noise")
            if getattr(self, name) == "paper"
        }
        ones = {"process_stds": ONES, "sensor_stds": ONES[:8]}
        return dataclasses.replace(self, **fixed, **ones)


def build_model(task: "PushingTask", settings: PushingModel, *, key: Key) -> StateSpaceModel:
    """Builds a model with fresh networks.

    The last layers of process and noise start close to zero, so that initially nothing moves and
    the noise has the standard deviations of the settings.
    """
    names = ("sensor", "process", "noise", "likelihood", "modes")
    keys = dict(zip(names, jr.split(key, len(names)), strict=True))
    process = _process(settings, key=keys["process"])
    if settings.modes == "contact":
        process = _switching(process, settings, key=keys["modes"])
    return StateSpaceModel(
        state_space=task.state_space,
        observation_space=task.observation_space,
        process=process,
        process_noise=_process_noise(settings, key=keys["noise"]),
        observe=observe,
        sensor=_sensor(task, settings, key=keys["sensor"]),
        likelihood=_likelihood(settings, key=keys["likelihood"]),
    )


def _process(settings: PushingModel, *, key: Key) -> Any:
    if settings.process == "analytical":
        return equations_of_pushing
    if settings.process == "reference":
        return ReferenceProcess()
    features, units = state_features(RANGE_SCALES), state_features()
    sizes = (features.size + PUSH_ENTRIES, 256, 128, 128, units.size)
    return LearnedPush(Perceptron(sizes, final_std=1e-3, key=key), features, units)


def _switching(process: Any, settings: PushingModel, *, key: Key) -> SwitchingProcess:
    """Makes the process with modes; the mode of contact has the process noise of the model."""
    noise_key, head_key = jr.split(key)
    features = _seen_by_noise(settings)
    sizes = (features.size + PUSH_ENTRIES, 32, len(MODE_START) ** 2)
    head = ModeHead(Perceptron(sizes, final_std=1e-3, key=head_key), features)
    free = Mode(free_motion, _process_noise(settings, key=noise_key))
    contact = Mode(InContact(process))
    transitions = LearnedTransitions(jnp.asarray(MODE_START), head=head)
    return SwitchingProcess(process, (free, contact), transitions)


def _process_noise(settings: PushingModel, *, key: Key) -> AbstractNoise:
    if settings.process_noise == "reference":
        return reference_noise()
    if settings.process_noise != "heteroscedastic":
        stds = (PAPER_PROCESS_STDS, settings.process_stds)
        return _unchanging(settings.process_noise, stds, settings)
    start = _start(settings.process_stds, settings)
    features = _seen_by_noise(settings)
    sizes = (features.size + PUSH_ENTRIES, 128, 64, head_size(start))
    network = Perceptron(sizes, final_std=1e-3, key=key)
    head = PushHead(FeatureHead(network, state_features()), features)
    return heteroscedastic_noise(head, start, PROCESS_FLOOR)


def _seen_by_noise(settings: PushingModel) -> Features:
    """Returns the features for process noise and modes, without l unless `friction_input`."""
    return state_features(RANGE_SCALES, unseen=() if settings.friction_input else ("l",))


def _sensor(task: "PushingTask", settings: PushingModel, *, key: Key) -> Sensor:
    if settings.sensor == "reference":
        return ReferenceSensor(task.camera)
    encoder_key, noise_key, encoding_key = jr.split(key, 3)
    network = PushingNetwork(task.camera, precision=settings.precision, key=encoder_key)
    shape, encoding = network.position.logits_size, no_encoding
    if settings.likelihood == "learned":
        encoding = likelihood_encoding(shape, key=encoding_key)
    elif settings.encoding == "recurrent":
        encoding = recurrent_encoding(shape, key=encoding_key)
    noise = _sensor_noise(settings, shape, key=noise_key)
    return NetworkSensor(PushingEncoder(network), observed_value, noise, encoding, lessons)


def _sensor_noise(settings: PushingModel, shape: tuple[int, int], *, key: Key) -> AbstractNoise:
    kind: Any = settings.sensor_noise
    if kind in ("hand-tuned", "paper"):
        return _unchanging(kind, (PAPER_SENSOR_STDS, settings.sensor_stds), settings)
    start = _start(settings.sensor_stds, settings)
    return sensor_noise(kind, start, shape, observation_features(), key=key)


def _likelihood(settings: PushingModel, *, key: Key) -> AbstractLikelihood:
    if settings.likelihood == "gaussian":
        return GaussianLikelihood()
    return learned_likelihood(observation_features(), key=key)


def _unchanging(
    kind: Any, stds: tuple[tuple[float, ...], tuple[float, ...]], settings: PushingModel
) -> AbstractNoise:
    """Makes noise without a network, with standard deviations of the paper or the settings."""
    paper, given = stds
    start = _start(paper if kind == "paper" else given, settings)
    if kind == "constant":
        return constant_noise(start, PROCESS_FLOOR)
    return FixedNoise(constant_noise(start))


def _start(stds: tuple[float, ...], settings: PushingModel) -> Array:
    """Returns the initial noise: standard deviations, or a full covariance matrix."""
    numbers = jnp.asarray(stds)
    return numbers if settings.covariance == "diagonal" else jnp.diag(numbers**2)
