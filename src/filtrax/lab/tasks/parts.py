"""Parts of models of one's own, which a configuration chooses in the place of a task's.

Where a model's setting has the choice among some names, as in `sensor = "paper"`, it may also be a
table, as in `sensor = { kind = "mine", width = 3 }`. The model is then built with the part that the
registered class of that kind builds.
"""

import abc
import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.random as jr

from filtrax._types import Key
from filtrax.lab.registry import family
from filtrax.noise import AbstractNoise
from filtrax.sensors import Sensor
from filtrax.state_space import StateSpaceModel

if TYPE_CHECKING:
    from filtrax.lab.tasks.base import AbstractTask


@family
@dataclasses.dataclass(frozen=True)
class AbstractSensorSettings(abc.ABC):
    """The settings of a sensor, for `sensor` of a model."""

    kind: ClassVar[str]

    @abc.abstractmethod
    def build(self, task: "AbstractTask", *, key: Key) -> Sensor:
        """Builds the sensor, with its encoder and its noise, for the readings of a task."""


@family
@dataclasses.dataclass(frozen=True)
class AbstractNoiseSettings(abc.ABC):
    """The settings of a noise, for `process_noise` or `sensor_noise` of a model."""

    kind: ClassVar[str]

    @abc.abstractmethod
    def build(self, task: "AbstractTask", size: int, *, key: Key) -> AbstractNoise:
        """Builds the noise; `size` is that of the state, or of what the sensor measures."""


PLACES = {"sensor": "sensor", "process_noise": "process_noise", "sensor_noise": "sensor.noise"}
"""The settings of a model that may be parts of one's own, and where the model has these parts."""


def build_model(task: "AbstractTask", settings: Any, *, key: Key) -> StateSpaceModel:
    """Builds the model of a task, with the parts that its settings have in the place of its own."""
    own = {name: getattr(settings, name, None) for name in PLACES}
    sorts = (AbstractSensorSettings, AbstractNoiseSettings)
    own = {name: part for name, part in own.items() if isinstance(part, sorts)}
    # Parts of one's own change no random number of the others.
    plain = dataclasses.replace(settings, **{name: _default(settings, name) for name in own})
    model = task.build(plain, key=key)
    for name, part_key in zip(PLACES, jr.split(jr.fold_in(key, 1), len(PLACES)), strict=True):
        if name in own:
            model = _with_part(model, task, name, own[name], part_key)
    return model


def _default(settings: Any, name: str) -> Any:
    return next(field.default for field in dataclasses.fields(settings) if field.name == name)


def _with_part(
    model: StateSpaceModel, task: "AbstractTask", name: str, part: Any, key: Key
) -> StateSpaceModel:
    if isinstance(part, AbstractSensorSettings):
        return eqx.tree_at(lambda m: m.sensor, model, part.build(task, key=key))
    if name == "process_noise":
        noise = part.build(task, model.process_noise.size, key=key)
        return eqx.tree_at(lambda m: m.process_noise, model, noise)
    present = getattr(model.sensor, "noise", None)
    if not isinstance(present, AbstractNoise):
        raise ValueError(
            f"model.sensor_noise can be of kind {part.kind!r} only if the sensor has a `noise`, "
            f"but this one is a {type(model.sensor).__name__}."
        )
    noise = part.build(task, present.size, key=key)
    return eqx.tree_at(lambda m: m.sensor.noise, model, noise)
