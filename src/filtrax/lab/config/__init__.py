"""Configurations: TOML files, and the settings of experiments in them."""

from filtrax.lab.config.packaged import find, shipped
from filtrax.lab.config.parsing import ConfigurationError, parse
from filtrax.lab.config.reading import (
    as_dict,
    as_toml,
    build,
    completed,
    differences,
    load,
    override,
    read,
    write,
)

__all__ = [
    "ConfigurationError",
    "as_dict",
    "as_toml",
    "build",
    "completed",
    "differences",
    "find",
    "load",
    "override",
    "parse",
    "read",
    "shipped",
    "write",
]
