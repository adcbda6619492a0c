"""Ready-made motions and sensors, and the function that builds a model of them for a log.

All are plain parts: a motion has a flow and entries of noise, a sensor a quantity and a
calibration. Numbers are learned unless they are given (`filtrax.given`).
"""

from filtrax.models._build import MotionNoise, MotionProcess, SensorObservation, build
from filtrax.models._driven import DrivenPose, PlanarImu
from filtrax.models._motions import (
    AbstractMotion,
    Bicycle,
    Body,
    ConstantAcceleration,
    ConstantVelocity,
    Unicycle,
)
from filtrax.models._naming import parameter_names
from filtrax.models._noise import Accumulated, TiedNoise, per_metre, per_second, tied_noise
from filtrax.models._parameters import RandomWalk
from filtrax.models._places import Landmarks, PlaceColumns
from filtrax.models._quantities import (
    AbstractQuantity,
    Bearing,
    Heading,
    Position,
    Range,
    RangeBearing,
    Speed,
    Velocity,
    YawRate,
)
from filtrax.models._sensors import Sensor, StreamSensor

__all__ = [
    "AbstractMotion",
    "AbstractQuantity",
    "Accumulated",
    "Bearing",
    "Bicycle",
    "Body",
    "ConstantAcceleration",
    "ConstantVelocity",
    "DrivenPose",
    "Heading",
    "Landmarks",
    "MotionNoise",
    "MotionProcess",
    "PlaceColumns",
    "PlanarImu",
    "Position",
    "RandomWalk",
    "Range",
    "RangeBearing",
    "Sensor",
    "SensorObservation",
    "Speed",
    "StreamSensor",
    "TiedNoise",
    "Unicycle",
    "Velocity",
    "YawRate",
    "build",
    "parameter_names",
    "per_metre",
    "per_second",
    "tied_noise",
]
