"""Parses tables and values of configuration files into frozen dataclasses.

The annotations of a dataclass are the schema. Fields may be `bool`, `int`, `float`, `str`, a
`Literal`, a dataclass (a table), a tuple of any of these (a list), a `dict` with strings as keys
(a table with free keys), or a union of dataclasses, of which the key `kind` chooses one by its
class variable of that name. Missing keys have their defaults. TOML has no `None`; the text "none"
stands for it.

Fields with the metadata `PYTHON_ONLY` cannot be set in a file. Fields with the metadata of
`follows` depend on the kind of another field: they take the defaults of that kind, unless they
are set.
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
"""Metadata of a field whose values cannot be written to a file."""


def follows(leader: str, section: str = "") -> dict[str, str]:
    """Returns metadata of a field that depends on the kind of an earlier field, the leader.

    `section` names the attribute of the leader's value that holds the dataclass of this field.
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
    """An invalid configuration; the message names the setting."""


def parse(cls: type[Config], mapping: Mapping[str, Any], where: str = "") -> Config:
    """Builds a dataclass from a mapping; `where` is its dotted key in error messages."""
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
    """Builds a dataclass from a table; missing keys come from a default of the same class."""
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
            continue  # the class fills it in by the kind of its leader
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
    """Returns the annotation of a field, or the dataclass that its leader chooses."""
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
    """Yields the dotted keys of all settings in nested tables."""
    hints = _hints(cls)
    for field in _fields(cls):
        for section, suffix in _sections(hints[field.name]):
            below = _join(where, field.name) + suffix
            yield from (f"{below}.{inner.name}" for inner in _fields(section))
            yield from _places(section, below)


def _sections(hint: Any) -> Iterator[tuple[type, str]]:
    """Yields the dataclasses in an annotation, each with the suffix of its key: "" or ".0"."""
    if _is_section(hint):
        yield hint, ""
    elif get_origin(hint) in (Union, UnionType):
        for option in get_args(hint):
            yield from _sections(option)
    elif get_origin(hint) is tuple:
        yield from ((section, f".0{suffix}") for section, suffix in _sections(get_args(hint)[0]))


def _value(hint: Any, value: Any, key: str, default: Any) -> Any:
    """Parses a value by its annotation; a table starts from a default of the same class."""
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
    # `True` is an instance of `int`, but no number.
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
    """Describes the values that an annotation allows, for error messages."""
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
