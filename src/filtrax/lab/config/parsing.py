"""Parses tables and values of configuration files into frozen dataclasses.

The annotations of a dataclass are the schema. Fields may be `bool`, `int`, `float`, `str`, a
`Literal`, a dataclass (a table), a tuple of any of these (a list), a `dict` with strings as keys
(a table with free keys), or a union of dataclasses, of which the key `kind` chooses one by its
class variable of that name. An abstract class with a registry (`filtrax.lab.registry`) is the union
of the classes that are registered for it. Missing keys have their defaults. TOML has no `None`; the
text "none" stands for it.

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
from filtrax.lab.registry import registered

Config = TypeVar("Config")

PYTHON_ONLY = {"python_only": True}
"""Metadata of a field whose values cannot be written to a file."""


def follows(leader: str, section: str = "") -> dict[str, str]:
    """Returns metadata of a field that depends on the kind of an earlier field, the leader.

    `section` names the attribute of the leader's value that holds the dataclass of this field.
    """
    return {"follows": leader, "section": section}


LARGEST = 2**31 - 1
"""The largest whole number of a setting: JAX cuts off what is longer than 32 bits."""


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


def fields_of(cls: Any) -> list[dataclasses.Field]:
    """Returns the fields of a dataclass that a file can set."""
    return [
        field
        for field in dataclasses.fields(cls)
        if field.init and not field.metadata.get("python_only")
    ]


def is_section(hint: Any) -> bool:
    """Returns True for a dataclass, whose values are tables with its fields as keys."""
    is_one = isinstance(hint, type) and dataclasses.is_dataclass(hint)
    return is_one and registered(hint) is None


def options_of(hint: Any) -> list[Any]:
    """Returns the alternatives of an annotation, with the registered classes of each family."""
    if get_origin(hint) in (Union, UnionType):
        return [option for entry in get_args(hint) for option in options_of(entry)]
    known = registered(hint)
    return [hint] if known is None else list(known.values())


def _is_choice(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType) or registered(hint) is not None


def _join(where: str, name: str | int) -> str:
    return f"{where}.{name}" if where else str(name)


def _section(cls: type, value: Any, where: str, default: Any) -> Any:
    """Builds a dataclass from a table; missing keys come from a default of the same class."""
    if not isinstance(value, Mapping):
        raise _refusal(where, cls, value)
    _refuse_unknown(cls, value, where)
    hints = _hints(cls)
    arguments = {}
    for field in fields_of(cls):
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


def hint_of(cls: type, field: dataclasses.Field) -> Any:
    """Returns the annotation of a field; if another field chooses its dataclass, all of them."""
    hints, section = _hints(cls), field.metadata.get("section")
    if not section:
        return hints[field.name]
    leaders = options_of(hints[field.metadata["follows"]])
    return Union[tuple(getattr(leader, section) for leader in leaders)]  # noqa: UP007


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
    known = [field.name for field in fields_of(cls)]
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
    for field in fields_of(cls):
        for section, suffix in _sections(hint_of(cls, field)):
            below = _join(where, field.name) + suffix
            yield from (f"{below}.{inner.name}" for inner in fields_of(section))
            yield from _places(section, below)


def _sections(hint: Any) -> Iterator[tuple[type, str]]:
    """Yields the dataclasses in an annotation, each with the suffix of its key: "" or ".0"."""
    if is_section(hint):
        yield hint, ""
    elif _is_choice(hint):
        for option in options_of(hint):
            yield from _sections(option)
    elif get_origin(hint) is tuple:
        yield from ((section, f".0{suffix}") for section, suffix in _sections(get_args(hint)[0]))


def _value(hint: Any, value: Any, key: str, default: Any) -> Any:
    """Parses a value by its annotation; a table starts from a default of the same class."""
    origin = get_origin(hint)
    if _is_choice(hint):
        return _alternative(hint, value, key, default)
    if origin is Literal:
        return _check_choice(key, value, get_args(hint))
    if origin is tuple:
        return _entries(hint, value, key)
    if origin is dict:
        return _named(hint, value, key)
    if is_section(hint):
        return _section(hint, value, key, default)
    return _scalar(hint, value, key)


def _alternative(hint: Any, value: Any, key: str, default: Any) -> Any:
    options = options_of(hint)
    if NoneType in options and value in (None, "none"):
        return None
    options = [option for option in options if option is not NoneType]
    sections: list[Any] = [option for option in options if is_section(option)]
    if isinstance(value, Mapping) and (len(sections) > 1 or _has_family(hint)):
        kinds = {section.kind: section for section in sections}
        kind = value.get("kind", getattr(default, "kind", _MISSING))
        if kind is _MISSING:
            raise ConfigurationError(f"`{key}.kind` is missing: it must be one of {list(kinds)}.")
        _check_kind(f"{key}.kind", kind, list(kinds), _has_family(hint))
        return _section(kinds[kind], value, key, default)
    if isinstance(value, Mapping) and sections:
        return _value(sections[0], value, key, default)
    plain = [option for option in options if option not in sections]
    if len(plain) == 1 or len(options) == 1:
        return _value((plain or options)[0], value, key, default)
    for option in plain:
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
    if type(value) is int and abs(value) > LARGEST and cls in (int, float):
        raise ConfigurationError(f"`{key}` must be at most {LARGEST}, got {_shortened(value)}.")
    if cls is float and type(value) in (int, float) and not math.isnan(value):
        return float(value)
    # `True` is an instance of `int`, but no number.
    if cls is float or type(value) is not cls:
        raise _refusal(key, cls, value)
    return value


def _shortened(number: int) -> str:
    return str(number) if abs(number) < 10**20 else f"one of about {number.bit_length()} bits"


def _check_choice(key: str, value: Any, choices: Sequence[Any]) -> Any:
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        _check_known(f"`{key}` must be one of the known choices", value, choices)
    return value


def _check_kind(key: str, kind: Any, kinds: Sequence[str], extensible: bool) -> None:
    """Refuses an unknown kind, and says how to load kinds of one's own where there may be any."""
    advice = "A module that registers it is loaded by --plugin MODULE."
    if extensible and not kinds:
        raise ConfigurationError(f"`{key}` must be a registered name, got {kind!r}. {advice}")
    try:
        _check_choice(key, kind, kinds)
    except ConfigurationError as error:
        if not extensible:
            raise
        raise ConfigurationError(f"{error} {advice}") from error


def _has_family(hint: Any) -> bool:
    return any(registered(entry) is not None for entry in (hint, *get_args(hint)))


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
    if registered(hint) is not None:
        return "a table with a `kind`"
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(dict.fromkeys(_expected(option) for option in get_args(hint)))
    if get_origin(hint) is Literal:
        return f"one of {list(get_args(hint))}"
    if get_origin(hint) is tuple:
        return "a list"
    if get_origin(hint) is dict:
        return "a table"
    if is_section(hint):
        return "a table with a `kind`" if hasattr(hint, "kind") else "a table"
    return _SCALARS[hint]
