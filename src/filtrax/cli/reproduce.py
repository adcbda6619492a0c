"""`filtrax reproduce`."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from filtrax.cli.errors import interruptible
from filtrax.cli.options import PLUGIN, load_plugins
from filtrax.cli.processes import helpers, share_device
from filtrax.cli.progress import duration, watch

STUDY = "studies/kloss2021"
"""The folder of a clone with the records of the paper's tables."""

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from filtrax.lab.reproduction.groups import Group
    from filtrax.lab.reproduction.plan import Plan
    from filtrax.lab.reproduction.records import Results
    from filtrax.lab.reproduction.scheduling import Executor
    from filtrax.lab.reproduction.tables import Table


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables, by name or by the path of a TOML file; `all` are all of them. `collect` "
            "before them merges their records below --out into those of --collected.",
            metavar="TABLE",
            show_default=False,
        ),
    ] = None,
    list_tables: Annotated[
        bool, typer.Option("--list", help="List all tables with their progress, and exit.")
    ] = False,
    scale: Annotated[
        str,
        typer.Option(
            help="smoke: seconds a cell, to see that it runs. small: minutes a cell on a CPU. "
            "paper: as in the paper, for a GPU.",
            metavar="smoke|small|paper",
        ),
    ] = "small",
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Cells whose name, or one of whose labels, matches a pattern like 'dEKF' or "
            "'*_dukf_*'. Repeatable.",
            metavar="PATTERN",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each cell.", min=1, show_default="the table's")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Epochs of all stages together.", min=1, show_default="the table's"),
    ] = None,
    data_sets: Annotated[
        int | None,
        typer.Option(
            help="On a GPU, cells of at most that many data sets train as one ensemble.",
            min=1,
            show_default="four, or any number where features are computed once",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting of all cells, as for `filtrax train`. Repeatable.",
            metavar="KEY=VALUE",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Stop after this time, at the end of an epoch; repeat the command to continue.",
            min=0,
            show_default="no limit",
        ),
    ] = None,
    pack: Annotated[
        Path | None,
        typer.Option(
            help="One file with all records and unfinished states: read at the start if it "
            "exists, written at the end. Takes the work to another machine.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            help="The number of training processes, which share this machine's GPU; see "
            "docs/how_to/clusters.md.",
            min=1,
            max=1024,
        ),
    ] = 1,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait for cells that other processes train, instead of exiting."
        ),
    ] = False,
    executor: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Train in this process, or on the machines of a Ray cluster."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="Address of a running Ray cluster; `auto` finds the one of this machine.",
            show_default="a new one on this machine",
        ),
    ] = None,
    gpus: Annotated[
        float, typer.Option(help="GPUs per worker of the Ray cluster; 0.5 shares one.", min=0)
    ] = 0.0,
    plugin: PLUGIN = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the records.", metavar="DIR", show_default="results/SCALE"),
    ] = None,
    collected: Annotated[
        Path | None,
        typer.Option(
            help="Folder of collected records, one file for each table. Their cells are done.",
            metavar="DIR",
            show_default=f"{STUDY} at scale paper, if there is one",
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="With `collect`: new records take the place of those that are there."
        ),
    ] = False,
) -> None:
    """Run a table or figure of the paper, cell by cell, and compare with the paper's numbers.

    Cells with a record are skipped. The same command resumes an interrupted run, and several
    processes may share a folder.

    Example: filtrax reproduce disc_benchmark --scale small --only dEKF

    See studies/kloss2021 for the results at full scale.
    """
    if processes > 1:
        share_device(processes)  # before JAX is imported
    load_plugins(plugin)
    from filtrax.lab.config import ConfigurationError
    from filtrax.lab.reproduction.plan import Plan
    from filtrax.lab.reproduction.records import Results
    from filtrax.lab.reproduction.tables import SCALES

    if scale not in SCALES:
        raise ConfigurationError(f"--scale must be one of {', '.join(SCALES)}, got {scale!r}.")
    if collected is None and scale == "paper" and Path(STUDY).is_dir():
        collected = Path(STUDY)
    results = Results(Path("results", scale) if out is None else out, collected)
    if (names or [])[:1] == ["collect"]:
        _collect(_tables((names or [])[1:] or ["all"]), results, replace=replace)
        return
    if replace:
        raise ConfigurationError("--replace belongs to `filtrax reproduce collect`.")
    if list_tables:
        from rich.console import Console

        from filtrax.lab.reproduction.display.terminal import print_list

        print_list(Console(), results)
        return
    tables = _tables(names or [])
    if pack is not None:
        _unpack(pack, results)
    plan = Plan(
        scale=scale,
        only=tuple(only or ()),
        num_seeds=seeds,
        num_epochs=epochs,
        seconds=None if minutes is None else 60 * minutes,
        most_data_sets=data_sets,
        settings=tuple(settings or ()),
        together=True if gpus > 0 else None,  # the workers have GPUs, whatever this machine has
    )
    trainer = _executor(executor, address, gpus, wait=wait or processes > 1)
    plan.check(tables)  # before helpers start and fail with the same error
    command = _command_of_helpers(names or [], results, plan, plugin or [])
    others = helpers(processes - 1, command, plan.seconds)
    try:
        _run(tables, results, plan, trainer, others)
    finally:  # after Ctrl-C, too
        if pack is not None:
            _pack(tables, results, pack)


def _collect(tables: "list[Table]", results: "Results", *, replace: bool) -> None:
    from filtrax.lab.config import ConfigurationError
    from filtrax.lab.reproduction.collection import collect

    if results.collected is None:
        raise ConfigurationError(
            "`filtrax reproduce collect` needs the folder to collect into: give --collected DIR."
        )
    names = [table.name for table in tables]
    count = collect(results.path, results.collected, names, replace=replace)
    typer.echo(f"Collected into {results.collected}: {count} new records")


def _unpack(file: Path, results: "Results") -> None:
    from filtrax.lab.experiments.records import check_output
    from filtrax.lab.reproduction.unpacking import unpack

    check_output(file)
    if file.exists():
        unpack(file, results)


def _pack(tables: "list[Table]", results: "Results", file: Path) -> None:
    from filtrax.lab.reproduction import packing
    from filtrax.lab.reproduction.tables import source_tables

    names = {table.name for table in tables} | source_tables(tables)
    packing.pack(results, sorted(names), file)
    typer.echo(f"Packed into {file}")


def _tables(names: list[str]) -> "list[Table]":
    from filtrax.lab.config import ConfigurationError
    from filtrax.lab.reproduction.tables import read_table, table_names

    if not names:
        raise ConfigurationError(
            "Name a table, or `all`; `filtrax reproduce --list` says which there are."
        )
    every = [name for given in names for name in (table_names() if given == "all" else [given])]
    return [read_table(name) for name in dict.fromkeys(every)]


def _executor(name: str, address: str | None, gpus: float, *, wait: bool) -> "Executor":
    from filtrax.lab.config import ConfigurationError
    from filtrax.lab.reproduction.executors import RayExecutor, train_and_wait, train_here

    if name == "ray":
        if wait:
            raise ConfigurationError("--processes and --wait belong to --executor local.")
        return RayExecutor(address, gpus=gpus)
    if address is not None or gpus > 0:
        raise ConfigurationError("--address and --gpus belong to --executor ray.")
    return train_and_wait if wait else train_here


def _command_of_helpers(
    names: list[str], results: "Results", plan: "Plan", plugins: list[str]
) -> list[str]:
    """Returns the arguments of `filtrax` for a helper process."""
    options = {
        "--scale": [plan.scale],
        "--only": plan.only,
        "--seeds": [plan.num_seeds],
        "--epochs": [plan.num_epochs],
        "--data-sets": [plan.most_data_sets],
        "--set": plan.settings,
        "--minutes": [None if plan.seconds is None else plan.seconds / 60],
        "--plugin": plugins,
        "--out": [results.path],
        "--collected": [results.collected],
    }
    given = [
        (name, str(value))
        for name, values in options.items()
        for value in values
        if value is not None
    ]
    return ["reproduce", *names, *itertools.chain(*given), "--wait"]


def _run(
    tables: "list[Table]",
    results: "Results",
    plan: "Plan",
    executor: "Executor",
    others: "AbstractContextManager[list[str]]",
) -> None:
    from rich.console import Console

    from filtrax.lab.reproduction.display.terminal import print_table
    from filtrax.lab.reproduction.running import reproduce

    kept = "Everything up to the last checkpoint is kept: the same command goes on."
    with interruptible(lambda: kept), watch() as progress, others as failures:
        finished = reproduce(tables, results, plan, _CellWatch(progress), executor)
    console = Console()
    for table in tables:
        print_table(table, results.records(table.name), console)
    for sentence in failures:
        typer.echo(sentence, err=True)
    typer.echo(f"Records: {results.path}")
    if not finished:
        typer.echo("Not all cells are done; the same command goes on.")


class _CellWatch:
    """Adds the names of the cells and the remaining time to the messages of a watch."""

    def __init__(self, progress: Any):
        import time

        self._progress, self._clock = progress, time.monotonic
        self._began, self._label = self._clock(), ""
        self._first: int | None = None

    def group(self, group: "Group", cells_done: int, num_cells: int) -> None:
        self._first = cells_done if self._first is None else self._first
        first, *others = group.cells
        more = f" and {len(others)} more" if others else ""
        self._label = f"{group.table} {first.name}{more}"
        parts = [f"{cells_done} of {num_cells} cells done"]
        new = cells_done - self._first
        if new > 0:
            left = (self._clock() - self._began) * (num_cells - cells_done) / new
            parts += [f"about {duration(left)} left"]
        self._progress.message(f"{', '.join(parts)}; now {self._label}")

    def start(self, stage: str, num_epochs: int, num_steps_per_epoch: int) -> None:
        self._progress.start(f"{self._label}, {stage}", num_epochs, num_steps_per_epoch)

    def step(self, done: int) -> None:
        self._progress.step(done)

    def epoch(self, record: dict[str, Any]) -> None:
        self._progress.epoch(record)

    def message(self, text: str) -> None:
        self._progress.message(text)
