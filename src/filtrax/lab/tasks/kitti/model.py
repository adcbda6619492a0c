"""The models of the KITTI task: process and sensor of a car (Kloss et al. 2021)."""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from filtrax._types import Inputs, Key, Observation, State
from filtrax.lab.tasks.base import AbstractModelSettings
from filtrax.lab.tasks.kitti import flow_encoder
from filtrax.lab.tasks.kitti.encoders import KittiEncoder, MatchingEncoder
from filtrax.lab.tasks.kitti.flow_encoder import FlowEncoder
from filtrax.lab.tasks.kitti.heads import Corrected, Relative, Shifted
from filtrax.lab.tasks.kitti.matching import MatchingNetwork
from filtrax.lab.tasks.kitti.network import FEATURES, MotionNetwork
from filtrax.lab.tasks.kitti.process import LearnedMotion, MotionHead, NoiseBeforeMotion, motion
from filtrax.lab.tasks.parts import AbstractNoiseSettings, AbstractSensorSettings
from filtrax.likelihoods import AbstractLikelihood, GaussianLikelihood, LearnedLikelihood
from filtrax.networks import Features, Perceptron, Precision
from filtrax.noise import (
    AbstractNoise,
    FeatureHead,
    FixedNoise,
    constant_noise,
    head_size,
    heteroscedastic_noise,
)
from filtrax.sensors import NetworkSensor
from filtrax.spaces import Space
from filtrax.state_space import StateSpaceModel

if TYPE_CHECKING:
    from filtrax.lab.tasks.kitti.task import KittiTask

SCALES = {"x": 1.0, "y": 1.0, "heading": 1.0, "speed": 10.0, "rate": 10.0}
"""Units of network inputs and outputs: typical changes of a pose in a step, and velocities."""

POSITION_SCALE = 100.0
"""Unit of positions as inputs of networks, which vary over a whole drive."""

CENTRE = (10.0, 0.0)
"""About the mean speed and heading rate of all drives; their spread is about their scale."""

FLOW_LAYER = 32
"""The size of the hidden layer in heads on features of optical flow."""

FLOW_ERRORS = (0.5, 1.0)
"""Typical errors of optical flow, in m/s and degrees per second."""

Dependence = Literal["constant", "heteroscedastic", "fixed"]
Five = tuple[float, float, float, float, float]


@dataclasses.dataclass(frozen=True)
class KittiModel(AbstractModelSettings):
    """The settings of a model of the KITTI task.

    Numbers are in the units of the state (metres, metres, degrees, m/s, degrees per second). The
    initial standard deviations are the paper's for training from scratch. The paper's floor is
    0.0316 for all components; here, floors reflect the achievable accuracy of a step of a car, and
    of a camera with few pixels.

    - `process`: a "learned" network of speed, heading rate, and cosine and sine of the heading, or
      the "analytical" equations of motion.
    - `process_noise`, `sensor_noise`: "fixed" is not trained and has no floor, like noise tuned by
      hand.
    - `noise_enters`: process noise is added "after" the motion, as in the paper, or "before" it, so
      that a change of velocity also changes the position in the same step. The latter suits
      "aligned" velocities, which are those of that step.
    - `likelihood`: a "learned" one sees speed and heading rate of particles in natural units, as in
      the paper. A "normalized" one sees them centred and scaled, which the paper suspects to be why
      earlier work (Jonschkowski et al. 2018) did better; with the sensor "flow", it sees their
      differences from the flow, in units of its error.
    - `sensor`: "paper" has convolutions on an image and its difference from the previous one.
      "matching" has dense layers on displacements of cells, for few training images. "flow" is
      optical flow with a learned correction and noise.
    - `covariance`: the shape of Q and R.
    - `process_stds`, `sensor_stds`: the standard deviations of Q and R before training.
    - `process_floors`, `sensor_floors`: the standard deviations that Q and R cannot go below.
    - `dropout`: the fraction of inputs of the sensor's dense layers that is dropped in training;
      ignored with "flow".
    - `precision`: the precision of images and activations in the paper's convolutions.
    - `position_input`: show the position to the process and its noise, and the heading to the
      noise, too; this tests the paper's advice against it.
    """

    process: Literal["learned", "analytical"] = "learned"
    process_noise: Dependence | AbstractNoiseSettings = "constant"
    noise_enters: Literal["after", "before"] = "after"
    sensor: Literal["paper", "matching", "flow"] | AbstractSensorSettings = "paper"
    sensor_noise: Dependence | AbstractNoiseSettings = "constant"
    covariance: Literal["diagonal", "full"] = "diagonal"
    likelihood: Literal["gaussian", "learned", "normalized"] = "gaussian"
    process_stds: Five = (0.1, 0.1, 0.1, 10.0, 10.0)
    sensor_stds: tuple[float, float] = (10.0, 10.0)
    process_floors: Five = (0.01, 0.01, 0.01, 0.03, 0.03)
    sensor_floors: tuple[float, float] = (0.1, 0.1)
    dropout: float = 0.3
    precision: Precision = "full"
    position_input: bool = False

    def __post_init__(self):
        for part in ("process", "sensor"):
            stds, floors = self._numbers(part)
            fixed = getattr(self, f"{part}_noise") == "fixed"
            possible = all(
                s > 0 and (fixed or 0 <= f <= s) for s, f in zip(stds, floors, strict=True)
            )
            if not possible:
                raise ValueError(
                    f"{part}_stds must be positive and at least {part}_floors, which must not be "
                    f"negative: got {stds} and {floors}."
                )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and less than 1, got {self.dropout}.")
        if self.noise_enters == "before" and self.process != "analytical":
            raise ValueError(
                'noise_enters = "before" must have the equations of motion, process = '
                f'"analytical", got process = "{self.process}".'
            )
        if self.precision != "full" and self.sensor != "paper":
            raise ValueError(
                f'precision must be "full" with sensor = "{self.sensor}", which has no '
                f'convolutions, got "{self.precision}": leave it out, or take sensor = "paper".'
            )

    @property
    def learns_likelihood(self) -> bool:
        return self.likelihood != "gaussian"

    @property
    def program(self) -> "KittiModel":
        """These settings with defaults for all numbers that compiled programs take as arguments.

        Models with equal `program` can train as one ensemble.
        """
        start = {}
        for part in ("process", "sensor"):
            start[f"{part}_stds"] = tuple(10.0 + floor for floor in self._numbers(part)[1])
        return dataclasses.replace(self, **start)

    def _numbers(self, part: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return getattr(self, f"{part}_stds"), getattr(self, f"{part}_floors")


def observe(state: State, inputs: Inputs) -> Observation:
    """Returns speed and heading rate."""
    del inputs
    return state[3:]


def build_model(
    task: "KittiTask", settings: KittiModel, channels: int, *, key: Key
) -> StateSpaceModel:
    """Builds a model with fresh networks for images with a number of channels.

    The last layers of process and noise start close to zero, so that initially nothing moves and
    the noise has the standard deviations of the settings.
    """
    sensor_key, process_key, noise_key, likelihood_key = jr.split(key, 4)
    return StateSpaceModel(
        state_space=task.state_space,
        observation_space=task.observation_space,
        process=_process(task.state_features, settings, key=process_key),
        process_noise=_process_noise(task.state_features, settings, key=noise_key),
        observe=observe,
        sensor=_sensor(task, settings, channels, key=sensor_key),
        likelihood=_likelihood(task.observation_features, settings, key=likelihood_key),
    )


def state_space() -> Space:
    """Returns the space of (x, y, heading, speed, rate); rates wrap, too, as in the paper."""
    return Space(tuple(SCALES), angles={"heading": 360.0, "rate": 360.0})


def state_features(
    unseen: tuple[str, ...] = ("x", "y"), position_scale: float = SCALES["x"]
) -> Features:
    """Returns features of a state: all but the unseen components, and the heading as direction."""
    return Features(
        state_space(),
        scale=SCALES | {"x": position_scale, "y": position_scale},
        unseen=unseen,
        directions=("heading",),
    )


def _features(settings: KittiModel, unseen: tuple[str, ...]) -> Features:
    """Returns features of a state without unseen components, or all with `position_input`."""
    return state_features(() if settings.position_input else unseen, POSITION_SCALE)


def _process(units: Features, settings: KittiModel, *, key: Key) -> Any:
    if settings.process == "analytical":
        return motion
    features = _features(settings, ("x", "y"))
    network = Perceptron((features.size, 32, 64, 64, len(SCALES)), final_std=1e-3, key=key)
    return LearnedMotion(network, features, units)


def _process_noise(units: Features, settings: KittiModel, *, key: Key) -> AbstractNoise:
    noise = _added_noise(units, settings, key=key)
    return noise if settings.noise_enters == "after" else NoiseBeforeMotion(noise)


def _added_noise(units: Features, settings: KittiModel, *, key: Key) -> AbstractNoise:
    features = _features(settings, ("x", "y", "heading"))
    start = _start(settings.process_stds, settings)
    if settings.process_noise != "heteroscedastic":
        return _unchanging(settings.process_noise, start, settings.process_floors)
    network = Perceptron((features.size, 32, 32, head_size(start)), final_std=1e-3, key=key)
    head = MotionHead(FeatureHead(network, units), features)
    return heteroscedastic_noise(head, start, _squares(settings.process_floors))


def _sensor(task: "KittiTask", settings: KittiModel, channels: int, *, key: Key) -> NetworkSensor:
    encoder_key, value_key, noise_key = jr.split(key, 3)
    return NetworkSensor(
        _encoder(task, settings, channels, key=encoder_key),
        FeatureHead(_value(settings, key=value_key), task.observation_features),
        _sensor_noise(task.observation_features, settings, key=noise_key),
    )


def _encoder(
    task: "KittiTask", settings: KittiModel, channels: int, *, key: Key
) -> KittiEncoder | MatchingEncoder | FlowEncoder:
    dropout = settings.dropout
    if settings.sensor == "flow":
        _check_unchanged(task)
        return FlowEncoder()
    if settings.sensor == "matching":
        size = task.image_size
        network = MatchingNetwork(size, num_features=FEATURES, dropout=dropout, key=key)
        return MatchingEncoder(network)
    shape = (*task.image_size, 2 * channels)
    precision = settings.precision
    return KittiEncoder(MotionNetwork(shape, dropout=dropout, precision=precision, key=key))


def _check_unchanged(task: "KittiTask") -> None:
    """Raises if augmentation changes images, because flow is computed only once."""
    if task.augmentation.changes_images:
        raise ValueError(
            'task.augmentation must not change images with model.sensor = "flow", which looks at '
            f"each pair of images once, got {task.augmentation}: leave out all but turn, and have "
            "windows mirrored by task.mirrored."
        )


def _num_features(settings: KittiModel) -> int:
    return len(flow_encoder.FEATURES) if settings.sensor == "flow" else FEATURES


def _value(settings: KittiModel, *, key: Key) -> Perceptron | Corrected:
    """Makes the network from features to a value; for flow, it corrects the flow's velocities."""
    if settings.sensor == "flow":
        sizes = (_num_features(settings), FLOW_LAYER, 2)
        return Corrected(Perceptron(sizes, final_std=0.0, key=key))
    return Perceptron((_num_features(settings), 2), key=key)


def _sensor_noise(units: Features, settings: KittiModel, *, key: Key) -> AbstractNoise:
    start = _start(settings.sensor_stds, settings)
    if settings.sensor_noise != "heteroscedastic":
        return _unchanging(settings.sensor_noise, start, settings.sensor_floors)
    hidden = (FLOW_LAYER,) if settings.sensor == "flow" else ()
    sizes = (_num_features(settings), *hidden, head_size(start))
    network = Perceptron(sizes, final_std=1e-3, key=key)
    floors = _squares(settings.sensor_floors)
    return heteroscedastic_noise(FeatureHead(network, units), start, floors)


def _likelihood(units: Features, settings: KittiModel, *, key: Key) -> AbstractLikelihood:
    if settings.likelihood == "gaussian":
        return GaussianLikelihood()
    network = Perceptron((_num_features(settings) + units.size, 128, 128, 1), key=key)
    if settings.likelihood == "learned":
        return LearnedLikelihood(network)
    if settings.sensor == "flow":
        return LearnedLikelihood(Relative(network, _scaled(FLOW_ERRORS, units)), units)
    offset = tuple(-mean for mean in _scaled(CENTRE, units))
    return LearnedLikelihood(Shifted(network, offset), units)


def _scaled(numbers: tuple[float, ...], units: Features) -> tuple[float, ...]:
    """Converts components of an observation to the units of networks."""
    return tuple((np.asarray(numbers) / np.asarray(units.scale)).tolist())


def _unchanging(kind: Any, start: Array, floors: tuple[float, ...]) -> AbstractNoise:
    if kind == "fixed":
        return FixedNoise(constant_noise(start))
    return constant_noise(start, _squares(floors))


def _start(stds: tuple[float, ...], settings: KittiModel) -> Array:
    """Returns the initial noise: standard deviations, or a full covariance matrix."""
    numbers = jnp.asarray(stds)
    return numbers if settings.covariance == "diagonal" else jnp.diag(numbers**2)


def _squares(numbers: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(number**2 for number in numbers)
