"""What the components of a run's states are called, and what they mean."""

from filtrax.lab.report.reading import Run

MIXED_UNITS = "mixed units"
"""Stands where the unit of a distance would, if the components are not all lengths."""


def component_names(run: Run) -> list[str]:
    """The names of the state's components."""
    return run.evaluation["names"].tolist()


def component_titles(run: Run) -> list[str]:
    """What the state's components are in words, as titles."""
    words = run.evaluation.get("meanings", run.evaluation["names"]).tolist()
    return [text[:1].upper() + text[1:] for text in words]


def component_units(run: Run) -> list[str]:
    """The units of the state's components; empty where they are not known."""
    if "units" in run.evaluation:
        return run.evaluation["units"].tolist()
    return [""] * len(component_names(run))


def distance_unit(run: Run) -> str:
    """The unit of a distance between states: known if components differ by time steps only."""
    if "units" not in run.evaluation:
        return ""
    lengths = {unit.split("/")[0] for unit in component_units(run)}
    return lengths.pop() if len(lengths) == 1 else MIXED_UNITS


def heading_component(run: Run) -> int | None:
    """Which component says where the tracked thing looks."""
    names = component_names(run)
    return names.index("heading") if "heading" in names else None


def turning_component(run: Run) -> tuple[int, str] | None:
    """Which component says how the tracked thing is turned, and what its error is called."""
    names = component_names(run)
    called = {"heading": "Heading error", "theta": "Orientation error"}
    return next(((names.index(name), text) for name, text in called.items() if name in names), None)


def measured_components(run: Run) -> list[int]:
    """Which components of the state are measured: the first ones if nothing is said."""
    arrays = run.evaluation
    if "measured_components" in arrays:
        return arrays["measured_components"].tolist()
    for name in ("measurements", "all_sensor_std", "measurement_covariances"):
        if name in arrays:
            return list(range(min(arrays[name].shape[-1], len(component_names(run)))))
    return []
