"""`filtrax schema`."""

import typer

from filtrax.cli.options import PLUGIN, load_plugins


def schema(plugin: PLUGIN = None) -> None:
    """Print a JSON Schema of configurations, with which editors complete and check them.

    Example: filtrax schema --plugin blob.py > filtrax.schema.json
    """
    import json

    from filtrax.lab.config.schema import schema as make
    from filtrax.lab.config.settings import Experiment

    load_plugins(plugin)
    made = make(Experiment, "A configuration of filtrax")
    typer.echo(json.dumps(made, indent=2, ensure_ascii=False))
