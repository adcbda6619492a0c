"""A JSON Schema of configurations, with which editors complete and check them.

It is made from the dataclasses of the settings, registered ones included: types from annotations,
descriptions from the entries of docstrings, as in "- `name`: its meaning.".
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from filtrax.lab.config.parsing import fields_of, is_section, options_of
from filtrax.lab.config.reading import plain

DRAFT = "http://json-schema.org/draft-07/schema#"

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_ENTRY = re.compile(r"^- ((?:`\w+`(?:, )?)+): (.+?)(?=^- |^\S|^$|\Z)", re.MULTILINE | re.DOTALL)


def schema(cls: type, title: str) -> dict[str, Any]:
    """Returns the JSON Schema (draft 7) of the files that `parse` reads into a dataclass."""
    definitions: dict[str, Any] = {}
    root = _table(cls, definitions)
    followers = [
        condition
        for field in fields_of(cls)
        if field.metadata.get("section")
        for condition in _conditions(cls, field, definitions)
    ]
    conditions = {"allOf": followers} if followers else {}
    ordered = dict(sorted(definitions.items()))
    return {"$schema": DRAFT, "title": title} | root | conditions | {"definitions": ordered}


def descriptions(cls: type) -> dict[str, str]:
    """Returns what the docstring of a dataclass says of its fields."""
    text = inspect.cleandoc(cls.__doc__ or "")
    found = {}
    for names, meaning in _ENTRY.findall(text):
        sentence = " ".join(meaning.split())
        found |= {name: sentence[:1].upper() + sentence[1:] for name in re.findall(r"\w+", names)}
    return found


def _table(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    kind = getattr(cls, "kind", None)
    meanings, hints = descriptions(cls), get_type_hints(cls)
    properties: dict[str, Any] = {} if kind is None else {"kind": {"const": kind}}
    for field in fields_of(cls):
        if field.metadata.get("section"):
            choices = [_reference(section, definitions) for section, _ in _followers(cls, field)]
            shape = {"anyOf": choices}
        else:
            shape = _shape(hints[field.name], _default(field), definitions)
        words = {"description": meanings[field.name]} if field.name in meanings else {}
        properties[field.name] = words | shape | _default_entry(field)
    required = [
        field.name
        for field in fields_of(cls)
        if _default(field) is dataclasses.MISSING and "follows" not in field.metadata
    ]
    summary = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0]
    table = {"type": "object", "description": " ".join(summary.split()), "properties": properties}
    needed = {"required": required} if required else {}
    return table | needed | {"additionalProperties": False}


def _shape(hint: Any, default: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of the values that an annotation allows."""
    if hint is Any:
        return {}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if get_origin(hint) is tuple:
        return _list(get_args(hint), definitions)
    if get_origin(hint) is dict:
        return {
            "type": "object",
            "additionalProperties": _shape(get_args(hint)[1], None, definitions),
        }
    if is_section(hint):
        return {"allOf": [_reference(hint, definitions)]}  # beside which words may stand
    if hint is NoneType:
        return {"const": "none"}
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    options = [_option(option, default, definitions) for option in options_of(hint)]
    return options[0] if len(options) == 1 else {"anyOf": options}


def _option(option: Any, default: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of one alternative; a table must have its `kind`, unless it is default."""
    if not is_section(option):
        return _shape(option, default, definitions)
    reference = _reference(option, definitions)
    return reference if type(default) is option else {"allOf": [reference], "required": ["kind"]}


def _list(hints: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return {"type": "array", "items": _shape(hints[0], None, definitions)}
    items = [_shape(hint, None, definitions) for hint in hints]
    return {"type": "array", "items": items, "minItems": len(items), "maxItems": len(items)}


def _reference(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    built_in = cls.__module__.startswith("filtrax.")
    name = cls.__name__ if built_in else f"{cls.__module__}.{cls.__name__}"
    if name not in definitions:
        definitions[name] = {}  # ends recursion
        definitions[name] = _table(cls, definitions)
    return {"$ref": f"#/definitions/{name}"}


def _followers(cls: type, field: dataclasses.Field) -> Iterator[tuple[type, str]]:
    """Yields the dataclasses of a field that another field chooses, each with the kind there."""
    hints = get_type_hints(cls)
    for leader in options_of(hints[field.metadata["follows"]]):
        yield getattr(leader, field.metadata["section"]), leader.kind


def _conditions(
    cls: type, field: dataclasses.Field, definitions: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yields the rules by which the kind of one table chooses the settings of another."""
    leader = field.metadata["follows"]
    first = next(_default(other) for other in fields_of(cls) if other.name == leader)
    for section, kind in _followers(cls, field):
        then = {"properties": {field.name: _reference(section, definitions)}}
        chosen = {"properties": {"kind": {"const": kind}}, "required": ["kind"]}
        yield {"if": {"properties": {leader: chosen}, "required": [leader]}, "then": then}
        if kind == first.kind:
            named = {"properties": {leader: {"required": ["kind"]}}, "required": [leader]}
            yield {"if": {"not": named}, "then": then}


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _default_entry(field: dataclasses.Field) -> dict[str, Any]:
    """Returns the default as an entry of the schema, unless it is a table or another field's."""
    value = _default(field)
    is_table = dataclasses.is_dataclass(value) or (
        isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value))
    )
    if value is dataclasses.MISSING or "follows" in field.metadata or is_table:
        return {}
    return {"default": plain(value)}
