"""The classes that configuration files choose by name, built-in ones and a user's alike.

A table of a configuration whose setting may be one of several things says which by its `kind`. What
may stand there is an abstract class (a family), and each final class that is registered for it.
"""

import inspect
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)

_FAMILIES: dict[type, dict[str, type]] = {}


def family(cls: Class) -> Class:
    """Makes an abstract class one whose subclasses can be registered (a decorator)."""
    _FAMILIES[cls] = {}
    return cls


def register(cls: Class) -> Class:
    """Makes a class known to configuration files by the name in its `kind` (a decorator).

    It must be a frozen dataclass that subclasses an abstract class for this purpose: a task, the
    settings of a filter, of a sensor or of a noise. Its fields are the settings that a file may
    have. A name that another class of the same sort has is an error.
    """
    base = next((base for base in cls.__mro__ if base in _FAMILIES), None)
    if base is None or base is cls:
        names = ", ".join(base.__name__ for base in _FAMILIES)
        raise TypeError(f"A registered class must be a subclass of {names}: got {_place(cls)}.")
    kind, known = getattr(cls, "kind", None), _FAMILIES[base]
    if not isinstance(kind, str) or not kind:
        raise TypeError(
            f"{_place(cls)} must say the name that configuration files use: "
            f'kind: ClassVar[str] = "...", got {kind!r}.'
        )
    _check_settings(cls)
    other = known.get(kind)
    if other is not None and _place(other) != _place(cls):
        raise ValueError(
            f"The name {kind!r} is taken by {_place(other)}, so that {_place(cls)} cannot have it: "
            "choose another `kind`."
        )
    known[kind] = cls
    return cls


def registered(base: Any) -> dict[str, type] | None:
    """Returns the registered classes of an abstract class by name; None if it has no registry."""
    return _FAMILIES.get(base) if isinstance(base, type) else None


def _check_settings(cls: type) -> None:
    parameters: Any = getattr(cls, "__dataclass_params__", None)
    if parameters is None or "__dataclass_fields__" not in vars(cls) or not parameters.frozen:
        raise TypeError(
            f"{_place(cls)} must be a frozen dataclass, whose fields are settings: put "
            "@dataclasses.dataclass(frozen=True) below @register."
        )
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise TypeError(f"{_place(cls)} must define {missing} to be registered.")


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
