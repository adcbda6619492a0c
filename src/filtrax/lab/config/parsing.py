"""From the tables and values of a configuration file to frozen dataclasses.

A dataclass says by its annotations what may stand in the file. Fields may be `bool`, `int`,
`float`, `str`, a `Literal`, a dataclass (a table), a tuple of any of these (a list), a `dict` with
names for keys (a table whose keys are free), or one of several dataclasses, which the key `kind`
chooses by their class variable of that name. What the file does not say stays as it is by default.
TOML has no word for `None`; here it is "none".

A field with the metadata `PYTHON_ONLY` cannot stand in a file. One with the metadata of `follows`
depends on which kind another field has: if the file does not say it, or chooses another kind, it
begins anew.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from filtrax._checks import check_known

Config = TypeVar("Config")

PYTHON_ONLY = {"python_only": True}
"""Metadata of a field that no file can hold, because its values are no text."""


def follows(leader: str, section: str = "") -> dict[str, str]:
    """Metadata of a field that belongs to the kind of another one, which comes before it.

    `section` is the attribute of the other one's value that holds the dataclass of this field.
    """
    return {"follows": leader, "section": section}


_MISSING: Any = dataclasses.MISSING
_SCALARS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
    NoneType: '"none"',
}


class ConfigurationError(ValueError):
    """A configuration that cannot be: one sentence that names the setting."""


def parse(cls: type[Config], mapping: Mapping[str, Any], where: str = "") -> Config:
    """Builds a dataclass from a mapping; `where` is the name that messages give to it."""
    return _section(cls, mapping, where, _MISSING)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _fields(cls: Any) -> list[dataclasses.Field]:
    return [
        field
        for field in dataclasses.fields(cls)
        if field.init and not field.metadata.get("python_only")
    ]


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _join(where: str, name: str | int) -> str:
    return f"{where}.{name}" if where else str(name)


def _section(cls: type, value: Any, where: str, default: Any) -> Any:
    """A dataclass from a table. What the table lacks comes from a default of the same class."""
    if not isinstance(value, Mapping):
        raise _refusal(where, cls, value)
    _refuse_unknown(cls, value, where)
    hints = _hints(cls)
    arguments = {}
    for field in _fields(cls):
        key = _join(where, field.name)
        fallback = getattr(default, field.name) if type(default) is cls else _default(field)
        if field.name in value:
            hint = _hint(field, hints, arguments)
            arguments[field.name] = _value(hint, value[field.name], key, fallback)
        elif "follows" in field.metadata:
            continue  # the class itself knows what belongs to the other field
        elif fallback is _MISSING:
            raise ConfigurationError(
                f"`{key}` is missing: it must be {_expected(hints[field.name])}."
            )
        else:
            arguments[field.name] = fallback
    try:
        return cls(**arguments)
    except ValueError as error:
        raise ConfigurationError(f"`{where}`: {error}" if where else str(error)) from error


def _hint(field: dataclasses.Field, hints: Mapping[str, Any], before: Mapping[str, Any]) -> Any:
    """The annotation of a field, or the one of its alternatives that a field before it chooses."""
    section = field.metadata.get("section")
    return getattr(before[field.metadata["follows"]], section) if section else hints[field.name]


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _refuse_unknown(cls: type, table: Mapping[str, Any], where: str) -> None:
    kind = getattr(cls, "kind", None)
    if kind is not None:
        _check_choice(_join(where, "kind"), table.get("kind", kind), [kind])
    known = [field.name for field in _fields(cls)]
    of_kind = "" if kind is None else f" of kind {kind!r}"
    for name in table:
        if name in known or (name == "kind" and kind is not None):
            continue
        below = [place for place in _places(cls, where) if place.rpartition(".")[2] == name]
        if below:
            advice = " or ".join(f"`{place}`" for place in dict.fromkeys(below))
            raise ConfigurationError(
                f"There is no setting `{_join(where, name)}`. Did you mean {advice}?"
            )
        _check_known(f"There is no setting `{_join(where, name)}`{of_kind}", name, known)


def _places(cls: type, where: str) -> Iterator[str]:
    """The dotted names of all settings in the tables under a table."""
    hints = _hints(cls)
    for field in _fields(cls):
        for section, suffix in _sections(hints[field.name]):
            below = _join(where, field.name) + suffix
            yield from (f"{below}.{inner.name}" for inner in _fields(section))
            yield from _places(section, below)


def _sections(hint: Any) -> Iterator[tuple[type, str]]:
    """The dataclasses in an annotation, and how their keys go on after the field's name."""
    if _is_section(hint):
        yield hint, ""
    elif get_origin(hint) in (Union, UnionType):
        for option in get_args(hint):
            yield from _sections(option)
    elif get_origin(hint) is tuple:
        yield from ((section, f".0{suffix}") for section, suffix in _sections(get_args(hint)[0]))


def _value(hint: Any, value: Any, key: str, default: Any) -> Any:
    """A value of the annotated type; the default is what a table of the same class starts from."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _alternative(hint, value, key, default)
    if origin is Literal:
        return _check_choice(key, value, get_args(hint))
    if origin is tuple:
        return _entries(hint, value, key)
    if origin is dict:
        return _named(hint, value, key)
    if _is_section(hint):
        return _section(hint, value, key, default)
    return _scalar(hint, value, key)


def _alternative(hint: Any, value: Any, key: str, default: Any) -> Any:
    options = get_args(hint)
    if NoneType in options and value in (None, "none"):
        return None
    options = [option for option in options if option is not NoneType]
    sections: list[Any] = [option for option in options if _is_section(option)]
    if isinstance(value, Mapping) and len(sections) > 1:
        kinds = {section.kind: section for section in sections}
        kind = value.get("kind", getattr(default, "kind", _MISSING))
        if kind is _MISSING:
            raise ConfigurationError(f"`{key}.kind` is missing: it must be one of {list(kinds)}.")
        return _section(kinds[_check_choice(f"{key}.kind", kind, list(kinds))], value, key, default)
    if len(options) == 1 or (isinstance(value, Mapping) and sections):
        return _value((sections or options)[0], value, key, default)
    for option in options:
        try:
            return _value(option, value, key, default)
        except ConfigurationError:
            continue
    raise _refusal(key, hint, value)


def _entries(hint: Any, value: Any, key: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _refusal(key, hint, value)
    hints = get_args(hint)
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        raise ConfigurationError(f"`{key}` must be a list of {len(hints)} entries, got {value!r}.")
    pairs = enumerate(zip(hints, value, strict=True))
    return tuple(_value(entry, given, _join(key, i), _MISSING) for i, (entry, given) in pairs)


def _named(hint: Any, value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _refusal(key, hint, value)
    _, entry = get_args(hint)
    if entry is Any:
        return dict(value)
    return {name: _value(entry, given, _join(key, name), _MISSING) for name, given in value.items()}


def _scalar(cls: type, value: Any, key: str) -> Any:
    if cls not in _SCALARS:
        raise TypeError(f"`{key}` has the annotation {cls}, which no configuration can hold.")
    if cls is float and type(value) in (int, float) and not math.isnan(value):
        return float(value)
    # `True` is an instance of `int`, but nobody who writes it means one.
    if cls is float or type(value) is not cls:
        raise _refusal(key, cls, value)
    return value


def _check_choice(key: str, value: Any, choices: Sequence[Any]) -> Any:
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        _check_known(f"`{key}` must be one of the known choices", value, choices)
    return value


def _check_known(what: str, name: Any, known: Sequence[Any]) -> None:
    try:
        check_known(what, [str(name)], [str(choice) for choice in known])
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _refusal(key: str, hint: Any, value: Any) -> ConfigurationError:
    name = f"`{key}`" if key else "A configuration"
    return ConfigurationError(f"{name} must be {_expected(hint)}, got {value!r}.")


def _expected(hint: Any) -> str:
    """What a setting must be, in words."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(dict.fromkeys(_expected(option) for option in get_args(hint)))
    if get_origin(hint) is Literal:
        return f"one of {list(get_args(hint))}"
    if get_origin(hint) is tuple:
        return "a list"
    if get_origin(hint) is dict:
        return "a table"
    if _is_section(hint):
        return "a table with a `kind`" if hasattr(hint, "kind") else "a table"
    return _SCALARS[hint]
