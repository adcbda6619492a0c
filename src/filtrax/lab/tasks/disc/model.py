"""The models of the disc task, with the networks of Kloss et al. (2021) and alternatives."""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from filtrax._types import Context, Inputs, Key, Observation, Reading, State
from filtrax.lab.tasks.base import AbstractModelSettings
from filtrax.lab.tasks.disc.images import render
from filtrax.lab.tasks.disc.keypoints import keypoint_value, proportional_noise
from filtrax.lab.tasks.disc.physics import process as analytical_process
from filtrax.lab.tasks.disc.reference import ReferenceSensor, reference_noise
from filtrax.lab.tasks.parts import AbstractNoiseSettings, AbstractSensorSettings
from filtrax.likelihoods import AbstractLikelihood, GaussianLikelihood, LearnedLikelihood
from filtrax.networks import ConvolutionalNetwork, KeypointNetwork, Perceptron
from filtrax.noise import (
    AbstractNoise,
    FeatureHead,
    StateHead,
    constant_noise,
    head_size,
    heteroscedastic_noise,
)
from filtrax.sensors import AbstractEncoder, NetworkSensor, Sensor
from filtrax.state_space import ResidualProcess, StateSpaceModel

if TYPE_CHECKING:
    from filtrax.lab.tasks.disc.task import DiscTask

FEATURES = 32
"""The size of the encoding of an image."""

Shape = Literal["diagonal", "full"]
Dependence = Literal["constant", "heteroscedastic"]
SensorKind = Literal["paper", "keypoints", "reference"]


@dataclasses.dataclass(frozen=True)
class DiscModel(AbstractModelSettings):
    """The settings of a model of the disc task.

    Standard deviations are in pixels. The floors reflect the accuracy of images, which is limited
    by whole pixels.

    - `process`: a "learned" network that adds to the state, or the "analytical" true process.
    - `process_noise`: Q from the state by a network ("heteroscedastic"), or "constant" but learned,
      or "true", which is that of the data and is not trained.
    - `sensor`: the "paper" network, a `KeypointNetwork` ("keypoints"), or the `ReferenceSensor`
      ("reference"), which knows the target's pixel.
    - `sensor_noise`: R from the image by a network ("heteroscedastic"), or "constant" but learned.
    - `covariance`: the shape of Q and R.
    - `likelihood`: the likelihood of particle filters; a "learned" one sees the encoded image.
    - `process_std`, `sensor_std`: the standard deviations of Q and R before training.
    - `process_floor`, `sensor_floor`: the standard deviations that Q and R cannot go below.
    """

    process: Literal["learned", "analytical"] = "learned"
    process_noise: Dependence | Literal["true"] | AbstractNoiseSettings = "heteroscedastic"
    sensor: SensorKind | AbstractSensorSettings = "paper"
    sensor_noise: Dependence | AbstractNoiseSettings = "heteroscedastic"
    covariance: Shape = "diagonal"
    likelihood: Literal["gaussian", "learned"] = "gaussian"
    process_std: float = 10.0
    sensor_std: float = 30.0
    process_floor: float = 0.1
    sensor_floor: float = 1.0

    def __post_init__(self):
        for part in ("process", "sensor"):
            std, floor = getattr(self, f"{part}_std"), getattr(self, f"{part}_floor")
            if not 0 <= floor <= std or std == 0:
                raise ValueError(
                    f"{part}_std must be positive and at least {part}_floor, which must not be "
                    f"negative: got {std} and {floor}."
                )
        if self.sensor == "reference" and self.likelihood == "learned":
            raise ValueError(
                'likelihood must be "gaussian" for the sensor "reference", which has no features '
                'that one could be learned from: got "learned".'
            )

    @property
    def learns_likelihood(self) -> bool:
        return self.likelihood != "gaussian"

    @property
    def program(self) -> "DiscModel":
        """These settings with defaults for all numbers that compiled programs take as arguments.

        Models with equal `program` can train as one ensemble.
        """
        start = {"process_std": 10.0 + self.process_floor, "sensor_std": 10.0 + self.sensor_floor}
        return dataclasses.replace(self, **start)


class DiscEncoder(AbstractEncoder):
    """Renders the image of a reading and encodes it."""

    network: ConvolutionalNetwork | KeypointNetwork
    image_size: int = eqx.field(static=True)

    def __call__(
        self, reading: Reading, inputs: Inputs, context: Context, *, key: Key | None = None
    ) -> Float[Array, " features"]:
        del inputs, key
        image = render(reading, context["radii"], context["colors"], self.image_size)
        return self.network(image)


def observe(state: State, inputs: Inputs) -> Observation:
    """Returns the position of the disc."""
    del inputs
    return state[:2]


def build_model(task: "DiscTask", settings: DiscModel, *, key: Key) -> StateSpaceModel:
    """Builds a model with fresh networks.

    The last layers of process and noise start close to zero, so that initially nothing moves and
    the noise has the standard deviations of the settings.
    """
    keys = dict(zip(("sensor", "process", "noise", "likelihood"), jr.split(key, 4), strict=True))
    return StateSpaceModel(
        state_space=task.state_space,
        observation_space=task.observation_space,
        process=_process(task, settings, key=keys["process"]),
        process_noise=_process_noise(task, settings, key=keys["noise"]),
        observe=observe,
        sensor=_sensor(task, settings, key=keys["sensor"]),
        likelihood=_likelihood(task, settings, key=keys["likelihood"]),
    )


def _process(task: "DiscTask", settings: DiscModel, *, key: Key) -> Any:
    if settings.process == "analytical":
        return analytical_process
    network = Perceptron((4, 32, 64, 64, 4), final_std=1e-3, key=key)
    return ResidualProcess(network, task.state_features)


def _process_noise(task: "DiscTask", settings: DiscModel, *, key: Key) -> AbstractNoise:
    if settings.process_noise == "true":
        return reference_noise(task)
    start = _start(4, settings.process_std, settings.covariance)
    if settings.process_noise == "constant":
        return constant_noise(start, settings.process_floor**2)
    network = Perceptron((4, 32, 32, head_size(start)), final_std=1e-3, key=key)
    head = StateHead(network, task.state_features)
    return heteroscedastic_noise(head, start, settings.process_floor**2)


def _sensor(task: "DiscTask", settings: DiscModel, *, key: Key) -> Sensor:
    if settings.sensor == "reference":
        return ReferenceSensor()
    encoder_key, value_key, noise_key = jr.split(key, 3)
    if settings.sensor == "keypoints":
        network = KeypointNetwork(3, num_features=FEATURES, key=encoder_key)
        value = keypoint_value(FEATURES, key=value_key)
    else:
        network = _papers_network(task.image_size, key=encoder_key)
        value = Perceptron((FEATURES, 2), key=value_key)
    return NetworkSensor(
        DiscEncoder(network, task.image_size),
        FeatureHead(value, task.observation_features),
        _sensor_noise(task, settings, key=noise_key),
    )


def _papers_network(image_size: int, *, key: Key) -> ConvolutionalNetwork:
    return ConvolutionalNetwork(
        (image_size, image_size, 3),
        channels=(4, 8),
        kernel_size=9,
        stride=2,
        sizes=(16, FEATURES),
        key=key,
    )


def _sensor_noise(task: "DiscTask", settings: DiscModel, *, key: Key) -> AbstractNoise:
    start, floor = _start(2, settings.sensor_std, settings.covariance), settings.sensor_floor**2
    if settings.sensor_noise == "constant":
        return constant_noise(start, floor)
    network = Perceptron((FEATURES, head_size(start)), final_std=1e-3, key=key)
    if settings.sensor == "keypoints":
        return proportional_noise(network, jnp.full(2, settings.sensor_std), floor)
    return heteroscedastic_noise(FeatureHead(network, task.observation_features), start, floor)


def _likelihood(task: "DiscTask", settings: DiscModel, *, key: Key) -> AbstractLikelihood:
    if settings.likelihood == "gaussian":
        return GaussianLikelihood()
    network = Perceptron((FEATURES + 2, 128, 128, 1), key=key)
    return LearnedLikelihood(network, task.observation_features)


def _start(size: int, std: float, covariance: Shape) -> Array:
    """Returns the initial noise: standard deviations, or a full covariance matrix."""
    return jnp.full(size, std) if covariance == "diagonal" else std**2 * jnp.eye(size)
