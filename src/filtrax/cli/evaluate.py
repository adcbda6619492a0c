"""`filtrax evaluate`."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from filtrax.cli.options import PLUGIN, SPLIT, load_plugins, say_if_changed
from filtrax.cli.tables import check_convergence, number_with_error, print_metrics

_INSTEAD = "of another recording that scores the run instead"


def evaluate(
    run: Annotated[
        Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", show_default=False)
    ],
    split: SPLIT = "test",
    members: Annotated[
        bool, typer.Option("--members", help="Show the metrics of every seed too.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the metrics as JSON too.", metavar="FILE", show_default=False),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(help=f"Folder {_INSTEAD}.", metavar="DIR", show_default=False),
    ] = None,
    sequence: Annotated[
        str | None,
        typer.Option(help="Name of that recording, like 00.", metavar="NN", show_default=False),
    ] = None,
    frames: Annotated[
        str | None,
        typer.Option(
            help="Its frames from A to before B; all without it.", metavar="A:B", show_default=False
        ),
    ] = None,
    camera: Annotated[
        list[str] | None,
        typer.Option(
            help="Its camera, like image_0. Repeatable.", metavar="NAME", show_default="the run's"
        ),
    ] = None,
    plugin: PLUGIN = None,
) -> None:
    """Compute the metrics of a trained run on one part of the data, or on another recording.

    Example: filtrax evaluate runs/disc --split validation --members

    A recording: filtrax evaluate runs/mine --root drives --sequence 05 --frames 0:1000
    """
    from filtrax.lab.experiments import run as experiments
    from filtrax.lab.experiments.records import RunFolder, check_output
    from filtrax.lab.files import RecordError, as_json, write_text

    load_plugins(plugin)
    folder = RunFolder(run)
    folder.check()
    say_if_changed(run)
    if out is not None:
        check_output(out)
    if not folder.model.is_file():
        raise RecordError(
            f"{run} has no trained filter yet: `filtrax train --resume {shlex.quote(str(run))}` "
            "finishes the run."
        )
    if root is None and sequence is None and frames is None and not camera:
        result = experiments.evaluate(run, split)
    else:
        result = _evaluate_recording(run, root, sequence, frames, camera or ())
    print_metrics(result, members=members)
    if "windows" in result:
        _print_windows(result)
    if out is not None:
        write_text(out, as_json(result, indent=2) + "\n")
        typer.echo(f"Metrics: {out}")
    if (sentence := check_convergence(result)) is not None:
        typer.echo(sentence, err=True)


def _evaluate_recording(
    run: Path, root: Path | None, sequence: str | None, frames: str | None, cameras: Sequence[str]
) -> dict[str, Any]:
    from filtrax.lab.experiments.run import evaluate_recording

    if root is None or sequence is None:
        raise ValueError(
            "A recording must be named by --root and --sequence both, as in --root drives "
            "--sequence 05."
        )
    return evaluate_recording(run, str(root), sequence, _range(frames), cameras)


def _range(text: str | None) -> tuple[int, int] | None:
    """Parses a range of frames like 0:1000."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+):(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise ValueError(
            f"--frames must be two whole numbers A:B, A less than B, as in 3000:3500: got {text!r}."
        )
    return int(found[1]), int(found[2])


def _print_windows(result: dict[str, Any]) -> None:
    """Prints translation and rotation errors per metre with standard errors over windows."""
    units = {"translation_error": "m/m", "rotation_error": "deg/m"}
    for name, unit in units.items():
        if name not in result["windows"]:
            continue
        found = result["windows"][name]
        value = number_with_error(found["mean"], found["standard_error"])
        label = name.replace("_", " ")
        typer.echo(f"{label}: {value} {unit} (± standard error over windows)")
