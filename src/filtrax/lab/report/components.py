"""Names, units and roles of the components of a run's states."""

from filtrax.lab.report.reading import Run

MIXED_UNITS = "mixed units"
"""Placeholder for the unit of a distance over components with different units."""


def component_names(run: Run) -> list[str]:
    """Returns the names of the state's components."""
    return run.evaluation["names"].tolist()


def component_titles(run: Run) -> list[str]:
    """Returns descriptions of the state's components, or their names, as titles."""
    words = run.evaluation.get("meanings", run.evaluation["names"]).tolist()
    return [text[:1].upper() + text[1:] for text in words]


def component_units(run: Run) -> list[str]:
    """Returns the units of the state's components; empty strings if unknown."""
    if "units" in run.evaluation:
        return run.evaluation["units"].tolist()
    return [""] * len(component_names(run))


def distance_unit(run: Run) -> str:
    """Returns the unit of distances between states, if units agree up to a divisor like "/s"."""
    if "units" not in run.evaluation:
        return ""
    lengths = {unit.split("/")[0] for unit in component_units(run)}
    return lengths.pop() if len(lengths) == 1 else MIXED_UNITS


def heading_component(run: Run) -> int | None:
    """Returns the index of the heading, or None."""
    names = component_names(run)
    return names.index("heading") if "heading" in names else None


def turning_component(run: Run) -> tuple[int, str] | None:
    """Returns the index of the heading or orientation with the title of its error, or None."""
    names = component_names(run)
    called = {"heading": "Heading error", "theta": "Orientation error"}
    return next(((names.index(name), text) for name, text in called.items() if name in names), None)


def measured_components(run: Run) -> list[int]:
    """Returns the indices of the measured components; the first ones unless recorded otherwise."""
    arrays = run.evaluation
    if "measured_components" in arrays:
        return arrays["measured_components"].tolist()
    for name in ("measurements", "all_sensor_std", "measurement_covariances"):
        if name in arrays:
            return list(range(min(arrays[name].shape[-1], len(component_names(run)))))
    return []
