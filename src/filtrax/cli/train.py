"""`filtrax train`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from filtrax.cli.errors import interruptible
from filtrax.cli.options import PLUGIN, load_plugins, say_if_changed
from filtrax.cli.progress import watch
from filtrax.cli.tables import check_convergence, print_metrics

if TYPE_CHECKING:
    from filtrax.lab.config.settings import Experiment


def train(
    config: Annotated[
        Path | None,
        typer.Argument(
            help="TOML file, or the name of one that comes with filtrax, like disc_ukf; without "
            "one, an extended Kalman filter learns the disc task.",
            metavar="CONFIG",
            show_default=False,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting, as in filter.kappa=1.5 or stages.0.num_epochs=3. Repeatable.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run.", metavar="DIR", show_default="runs/NAME"),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Resume an interrupted run.", metavar="RUN", show_default=False),
    ] = None,
    devices: Annotated[
        Literal["one", "all"],
        typer.Option(help="Train on one device, or on all that are visible at once."),
    ] = "one",
    plugin: PLUGIN = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings as TOML and exit.")
    ] = False,
) -> None:
    """Train a filter, and write its configuration, logs, weights and results into one folder.

    Example: filtrax train --set filter.kind=ukf --set num_seeds=5 --out runs/ukf

    A file to start from: filtrax train --print-config > my.toml
    """
    load_plugins(plugin)
    if resume is None:
        experiment, folder = _begin(config, overrides or [], out)
    else:
        experiment, folder = _go_on(resume, config, overrides, out)
    if print_config:
        from filtrax.lab.config import as_toml

        typer.echo(as_toml(experiment), nl=False)
        return

    from filtrax.lab.experiments import run
    from filtrax.lab.experiments.events import EventLog

    with interruptible(lambda: _advice(folder)), watch() as progress:
        if not EventLog.available():
            progress.message("No TensorBoard events: `pip install tensorboardX` adds them.")
        result = run.train(experiment, folder, progress, resume=resume is not None, devices=devices)
    print_metrics(result)
    typer.echo(f"Run folder: {folder}")
    if (sentence := check_convergence(result)) is not None:
        typer.echo(sentence, err=True)


def _advice(folder: Path) -> str:
    """Says how to go on after an interrupt: before its first file there is no run to resume."""
    if (folder / "config.toml").is_file():
        return f"Go on with `filtrax train --resume {shlex.quote(str(folder))}`."
    return "Nothing was trained yet: the same command begins again."


def _begin(
    config: Path | None, overrides: list[str], out: Path | None
) -> tuple["Experiment", Path]:
    from filtrax.lab.config import ConfigurationError, find, read
    from filtrax.lab.config.settings import Experiment

    experiment = read(Experiment, None if config is None else find(config), overrides)
    name = experiment.name
    if out is None and (name in ("", "..") or Path(name).name != name):
        raise ConfigurationError(
            f"`name` must be the name of a folder under runs/, got {name!r}; --out takes any path."
        )
    return experiment, Path("runs", name) if out is None else out


def _go_on(resume: Path, *forbidden: object) -> tuple["Experiment", Path]:
    from filtrax.lab.config import ConfigurationError, read
    from filtrax.lab.config.settings import Experiment
    from filtrax.lab.experiments.records import RunFolder

    if any(forbidden):
        raise ConfigurationError(
            "A resumed run keeps its configuration and its folder: --resume takes no CONFIG, "
            "--set or --out."
        )
    folder = RunFolder(resume)
    folder.check()
    say_if_changed(resume)
    return read(Experiment, folder.config), resume
