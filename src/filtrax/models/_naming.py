"""Names of the parameters of a built model, as its owner knows them."""

import re

import jax

from filtrax._given import parameters
from filtrax.logs import Layout
from filtrax.state_space import StateSpaceModel


def parameter_names(model: StateSpaceModel) -> dict[str, str]:
    """All numbers that may be learned, by names their owner knows, as `train` of `fit` names them.

    Numbers of the motion have the names of its arguments, those of a sensor the name of its stream
    in front: "drift", "uwb.bias", "uwb.std". The result has "model.observe.sensors.0.bias" for
    "uwb.bias". Given numbers are left out.
    """
    streams = tuple(Layout.of(model).readings)
    components = model.state_space.names_of(model.state_space.size or 0)
    walks = components[len(components) - len(getattr(model.process_noise, "walks", ())) :]
    rules = (
        (r"process\.motion\.(\w+)", lambda m: m[1]),
        (r"process_noise\.noise\.(\w+)", lambda m: m[1]),
        (r"process_noise\.walks\.(\d+)", lambda m: f"{walks[int(m[1])]}.walk"),
        (r"observe\.sensors\.(\d+)\.(\w+)", lambda m: f"{streams[int(m[1])]}.{m[2]}"),
        (r"sensor\.sensors\.(\d+)\.noise", lambda m: f"{streams[int(m[1])]}.std"),
    )
    leaves = jax.tree_util.tree_leaves_with_path(parameters(model))
    places = [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, learned in leaves
        if learned
    ]
    found = [(re.match(pattern, p), name) for p in places for pattern, name in rules]
    return {name(match): f"model.{match[0]}" for match, name in found if match is not None}
