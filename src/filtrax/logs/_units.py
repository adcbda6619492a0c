"""Units that are named, and their factors to SI."""

import re
from typing import NamedTuple

import numpy as np


class Unit(NamedTuple):
    """A unit: its factor to the SI unit `base`."""

    factor: float
    base: str


_FACTORS = {
    "s": {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0},
    "m": {"m": 1.0, "mm": 1e-3, "cm": 1e-2, "dm": 0.1, "km": 1e3, "in": 0.0254, "ft": 0.3048},
    "m/s": {
        **{"m/s": 1.0, "mm/s": 1e-3, "cm/s": 1e-2, "km/h": 1 / 3.6, "kph": 1 / 3.6},
        **{"m s^-1": 1.0, "mph": 0.44704, "kn": 1852 / 3600},
    },
    "m/s²": {
        **{"m/s²": 1.0, "m/s^2": 1.0, "m/s2": 1.0, "m s^-2": 1.0, "mm/s^2": 1e-3, "mm/s²": 1e-3},
        **{"g": 9.80665, "mg": 9.80665e-3},
    },
    "rad": {"rad": 1.0, "mrad": 1e-3, "deg": np.pi / 180, "°": np.pi / 180, "turn": 2 * np.pi},
    "rad/s": {
        **{"rad/s": 1.0, "rad s^-1": 1.0, "mrad/s": 1e-3, "deg/s": np.pi / 180},
        **{"°/s": np.pi / 180, "deg s^-1": np.pi / 180, "rpm": 2 * np.pi / 60},
    },
    "": {"": 1.0, "1": 1.0, "%": 0.01},
}
UNITS = {
    name: Unit(factor, base) for base, units in _FACTORS.items() for name, factor in units.items()
}
"""Units by name."""

NANOSECONDS = {"s": 10**9, "sec": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "ns": 1}
"""Whole nanoseconds in a unit of time."""

_HEADER = re.compile(r"^(?P<name>.*?)\s*[\[(](?P<unit>[^\])]*)[\])]$")


def split_header(header: str) -> tuple[str, str]:
    """The name of a column and its unit, as in `range [mm]`; the unit is "" if none is named."""
    match = _HEADER.match(header.strip())
    if match is None or match["unit"].strip() not in UNITS or not match["name"]:
        return header.strip(), ""
    return match["name"].strip(), match["unit"].strip()
