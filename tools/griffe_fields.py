"""Signatures of Equinox modules for the API pages.

Griffe reads sources without running them and knows constructors of dataclasses by their decorator.
A module of Equinox is a dataclass without one. This extension of Griffe gives it the constructor
that its fields define.
"""

from typing import Any

from griffe import (
    Attribute,
    Class,
    ExprCall,
    Extension,
    Function,
    Module,
    Parameter,
    ParameterKind,
    Parameters,
)

KEYWORD, POSITIONAL = ParameterKind.keyword_only, ParameterKind.positional_or_keyword


class FieldsExtension(Extension):
    """Adds `__init__` to Equinox modules that have none."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Visits all classes of a package once it is loaded."""
        lineages = {cls.path: [cls, *_bases(cls)] for cls in _classes(pkg)}
        bare = [
            lineage
            for lineage in lineages.values()
            if _is_equinox(lineage) and not any("__init__" in cls.members for cls in lineage)
        ]
        for lineage in bare:
            fields = [field for cls in reversed(lineage) for field in _fields(cls)]
            unique = {field.name: field for field in fields}  # the last one wins
            lineage[0].set_member("__init__", _constructor(lineage[0], list(unique.values())))


def _classes(parent: Module | Class) -> list[Class]:
    members = [member for member in parent.members.values() if not member.is_alias]
    classes = [member for member in members if isinstance(member, Class)]
    parents = [member for member in members if isinstance(member, (Module, Class))]
    return classes + [cls for inner in parents for cls in _classes(inner)]


def _bases(cls: Class) -> list[Class]:
    """The bases of a class within the package, the closest first."""
    try:
        return cls.mro()
    except ValueError:
        return []


def _is_equinox(lineage: list[Class]) -> bool:
    bases = [base for cls in lineage for base in cls.bases]
    return any(getattr(base, "canonical_path", base) == "equinox.Module" for base in bases)


def _fields(cls: Class) -> list[Parameter]:
    fields = []
    for member in cls.members.values():
        if not isinstance(member, Attribute) or "instance-attribute" not in member.labels:
            continue
        options = _options(member.value)
        if options.get("init") == "False" or "AbstractVar[" in str(member.annotation):
            continue
        default = options.get("default") if _is_field(member.value) else member.value
        if "default_factory" in options:
            default = f"{options['default_factory']}()"
        kind = KEYWORD if options.get("kw_only") == "True" else POSITIONAL
        annotation = member.annotation
        fields.append(Parameter(member.name, annotation=annotation, kind=kind, default=default))
    return fields


def _is_field(value: Any) -> bool:
    """Tells whether a value is a call like `eqx.field(default=1)` or `given_field()`."""
    return isinstance(value, ExprCall) and value.canonical_path.endswith("field")


def _options(value: Any) -> dict[str, Any]:
    """The keyword arguments of such a call: `default` as an expression, others as text."""
    if not _is_field(value):
        return {}
    given = {one.name: one.value for one in value.arguments if hasattr(one, "name")}
    return {name: one if name == "default" else str(one) for name, one in given.items()}


def _constructor(cls: Class, fields: list[Parameter]) -> Function:
    ordered = sorted(fields, key=lambda field: field.kind is KEYWORD)
    this = Parameter("self", kind=POSITIONAL)
    return Function("__init__", parent=cls, parameters=Parameters(this, *ordered))
