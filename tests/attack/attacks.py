"""Bad inputs made by program, and the judge of how they end.

An attack is right if it ends in one sentence with exit code 2, as a `ValueError`, `OSError` or
`TypeError` with one in the library, or in an answer that its own check accepts. Everything is drawn
from fixed seeds. Attacks of files damage a good file at a drawn place, so that all bytes count.
"""

import contextlib
import dataclasses
import functools
import io
import json
import random
import re
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from typer.main import get_command
from typer.testing import CliRunner

SENTENCE, ANSWER, BAD = "one sentence", "right answer", "bad"

RAW = re.compile(
    r"Traceback|has no attribute|index out of range|not subscriptable|unexpected keyword|"
    r"embedded null|max\(\) arg|not enough values|too many values|pickle|unsafely|"
    r"invalid literal for|object is not|broadcast together|tuple\.index|KeyError|"
    r"maximum recursion|Singular matrix|codec can't"
)
"""What Python and NumPy say to programmers, and nobody else understands."""


@dataclasses.dataclass(frozen=True)
class Attack:
    """One bad input: a group for the figures, a name, and a function of an empty folder."""

    group: str
    name: str
    run: Callable[[Path], Any]

    def __str__(self):
        return f"{self.group}: {self.name}"


@dataclasses.dataclass(frozen=True)
class Words:
    """The exit code and the last line of a command."""

    code: int
    said: str
    error: BaseException | None


def judge(attack: Attack, folder: Path) -> tuple[str, str]:
    """Runs an attack; returns how it ended, and what was said."""
    try:
        with warnings.catch_warnings(), contextlib.chdir(folder):
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)  # which is a sentence of its own
            answer = attack.run(folder)
    except (ValueError, OSError, TypeError) as error:
        return _of_sentence(str(error))
    except Exception as error:
        return BAD, f"{type(error).__name__}: {error}"
    if not isinstance(answer, Words):
        return (ANSWER, "") if answer in (None, True) else (BAD, f"a wrong answer: {answer}")
    if answer.code == 0:
        return ANSWER, ""
    if answer.code != 2 or answer.error is not None:
        return BAD, f"exit code {answer.code}: {answer.error!r}"
    if not answer.said.startswith("Error: "):
        return BAD, answer.said
    return _of_sentence(answer.said)


def _of_sentence(text: str) -> tuple[str, str]:
    text = text.strip()
    good = len(text) > 10 and text[-1] in ".?`]" and RAW.search(text) is None and len(text) < 3000
    return (SENTENCE if good else BAD), text


def command(*words: str) -> Words:
    """Runs the command line in this process."""
    from filtrax.cli import app

    result = CliRunner().invoke(app, list(words))
    error = None if isinstance(result.exception, SystemExit) else result.exception
    lines = result.stderr.strip().splitlines()
    said = lines[-1] if lines else ""
    return Words(result.exit_code, said if len(lines) < 2 else "\n".join(lines), error)


# --- words of the command line ------------------------------------------------------------------

NASTY = (
    *("", " ", "-1", "0", "nan", "inf", "-inf", "1e400", "9" * 400, "0x10", "1_0", "١", "½"),
    *("none", "null", "true", "../..", "/", "~", "a\x00b", "a\nb", "🙂", "%s%n", "$(id)", "--"),
    *("=", "a=b=c", "[", "{}", '"', "\\", "a" * 5000, "con", ".", "*", "-", "\u202e", "\ud800"),
)
HARMLESS = {"train": ["--print-config"], "report": ["none"], "evaluate": ["none"]}
HARMLESS |= {"reproduce": ["none"], "bench": ["--suite", "none"]}
HARMLESS |= {f"data {name}": ["--set", "none=1"] for name in ("disc", "kitti", "pushing")}


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, verb in group.commands.items():
        if hasattr(verb, "commands"):
            yield from _commands(verb, (*path, name))
        else:
            yield (*path, name), verb


def words() -> Iterator[Attack]:
    """Every option of every verb with nasty values, beside words that keep it from working long."""
    from filtrax.cli import app

    for path, verb in _commands(get_command(app)):
        beside = HARMLESS.get(" ".join(path))
        if beside is None:
            continue  # verbs without a harmless form: `demo`, and what writes drives
        for option in verb.params:
            if option.param_type_name != "option" or option.is_eager:
                continue
            for number, value in enumerate(NASTY):
                given = [option.opts[0], value] if not option.is_flag else [option.opts[0]]
                run = functools.partial(_command, [*path, *beside, *given])
                yield Attack("words", f"{' '.join(path)} {option.opts[0]} {number}", run)
                if option.is_flag:
                    break
    for number, value in enumerate(NASTY):
        for verb in ("train --print-config", "evaluate", "report", "reproduce", "data", "none"):
            run = functools.partial(_command, [*verb.split(), value])
            yield Attack("words", f"{verb} word {number}", run)


def _command(arguments: list[str], folder: Path) -> Words:
    del folder
    return command(*arguments)


# --- settings -----------------------------------------------------------------------------------

VALUES = (
    *(-1, 0, 2**31, 2**63, 10**25, 10**400, -(10**400), True, 0.5, -0.5, 1e300, 5e-324),
    *(float("nan"), float("inf"), float("-inf"), "", "none", "x", "../x", "a\x00b", "🙂" * 99),
    *([], [1], ["x"], [[]], {}, {"kind": "x"}, {"kind": []}, {"a": {"b": {}}}, [{}] * 3),
)


def settings() -> Iterator[Attack]:
    """Every setting of every task and filter with values of other types and sizes."""
    from filtrax.lab import config
    from filtrax.lab.config.settings import Experiment

    for task in ("disc", "kitti", "pushing"):
        for filt in ("ekf", "ukf", "mcukf", "particle", "lstm"):
            try:
                kinds = [f"task.kind={task}", f"filter.kind={filt}"]
                whole = config.as_dict(config.build(Experiment, {}, kinds))
            except config.ConfigurationError:
                continue
            keys = [key for key in _keys(whole) if task == "disc" or key[0] == "task"]
            for key in keys if filt == "ekf" else [key for key in keys if key[0] == "filter"]:
                for number, value in enumerate(VALUES):
                    run = functools.partial(_setting, whole, key, value)
                    name = f"{task} {filt} {'.'.join(map(str, key))} {number}"
                    yield Attack("settings", name, run)


def _keys(value: Any, before: tuple = ()) -> Iterator[tuple]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in items:
        yield (*before, key)
        if isinstance(below, dict) or (isinstance(below, list) and below):
            yield from _keys(below, (*before, key))


def _setting(whole: dict, key: tuple, value: Any, folder: Path) -> bool:
    from filtrax.lab import config
    from filtrax.lab.config.settings import Experiment

    del folder
    mapping = json.loads(json.dumps(whole))
    place = mapping
    for part in key[:-1]:
        place = place[part]
    place[key[-1]] = value
    parsed = config.build(Experiment, mapping)
    return config.build(Experiment, config.as_dict(parsed)) == parsed  # nothing was repaired


TEXTS = (
    *("[" * 100_000, "a = " + "[" * 100_000, "a = " + "{a=" * 50_000, "x", "= 3", "a = 1\na = 2"),
    *("\x00", "\ufeff" * 2, "a = " + "9" * 5000, "[stages]\n", "[[stages]]\n" * 3, "stages = []"),
    *("stages = 1", "[task]\nkind = 3", "seed = 0x", "name = '''", '"" = 1', "[a.b]\n[a]\nb = 1"),
    *("num_seeds = 1e3", "seed = 1979-05-27", "task = []", "[task.kind]", "filter = 'ekf'"),
)


def toml() -> Iterator[Attack]:
    """Whole files that are no configurations."""
    for number, text in enumerate(TEXTS):
        yield Attack("TOML files", str(number), functools.partial(_toml, text.encode()))
    for number in range(40):
        content = random.Random(number).randbytes(200)
        yield Attack("TOML files", f"bytes {number}", functools.partial(_toml, content))
    for number, value in enumerate(NASTY):
        run = functools.partial(_command, ["train", "--print-config", "--set", f"seed={value}"])
        yield Attack("TOML files", f"--set seed {number}", run)


def _toml(content: bytes, folder: Path) -> Words:
    (folder / "a.toml").write_bytes(content)
    return command("train", "a.toml", "--print-config")


# --- files --------------------------------------------------------------------------------------


def damaged(data: bytes, seed: int) -> bytes:
    """Damages bytes in one of several ways, at a place that the seed draws."""
    draw = random.Random(seed)
    place, kind = draw.randrange(max(len(data), 1)), seed % 8
    if kind in (0, 1):
        return data[:place]
    if kind == 2:
        return data[:place] + draw.randbytes(draw.randrange(1, 9)) + data[place:]
    if kind == 3:
        return data[:place] + data[place + draw.randrange(1, 99) :]
    if kind == 4:
        return draw.choice([b"", b"\x00", b"null", b"[]", b"{}", b"[" * 100_000, b'{"a":' * 50_000])
    if kind == 5:
        return re.sub(rb"\d+", b"9" * 400, data, count=draw.randrange(1, 4))
    changed = bytearray(data)
    for _ in range(1 if kind == 6 else 9):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


@functools.cache
def _samples() -> dict[str, bytes]:
    """Good files of all formats, by name."""
    from report.fake_run import write_run

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = write_run(folder / "run")
        found = {path.name: path.read_bytes() for path in run.iterdir()}
        found |= {"a.png": _png(), "00.txt": _poses(), "a.json": _trial(), "cell.json": _record()}
        found |= {"model.npz": _model(folder / "model.npz"), "pack": _pack()}
        found |= {"t.jsonl": _collection(folder), "a.h5": _hdf5(folder / "a.h5")}
        found |= {"pushes.csv": _pushes(), "shapes.json": _shapes()}
    return found


def _png() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(file, "PNG")
    return file.getvalue()


def _poses() -> bytes:
    return b"1 0 0 0 0 1 0 0 0 0 1 0\n" * 5


def _tables() -> dict[str, list]:
    times = np.linspace(0, 1, 30)
    rows = np.stack([times, 0.1 * times, 0 * times, 0 * times], -1).tolist()
    return dict.fromkeys(("tip_pose", "object_pose", "ft_wrench"), rows)


def _trial() -> bytes:
    return json.dumps(_tables()).encode()


def _hdf5(path: Path) -> bytes:
    import h5py

    with h5py.File(path, "w") as file:
        for name, rows in _tables().items():
            file[name] = rows
    return path.read_bytes()


def _pushes() -> bytes:
    from filtrax.lab.tasks.pushing.recordings import endpoints

    row = ["abs", "hex", *("1" for _ in endpoints.COLUMNS[2:])]
    return f"{','.join(endpoints.COLUMNS)}\n{','.join(row)}\n".encode()


def _shapes() -> bytes:
    shape = {"type": "polygon", "vertices": [[0, 0], [1, 0], [1, 1]]}
    return json.dumps({"shapes": {"hex": shape}}).encode()


def _record(table: str = "t") -> bytes:
    config = {"name": "a", "task": {"kind": "disc"}}
    return json.dumps({"table": table, "config": config, "origin": {}, "mean": {"nll": 1}}).encode()


def _collection(folder: Path) -> bytes:
    from filtrax.lab.reproduction.collection import collect

    (folder / "in" / "t").mkdir(parents=True)
    for name in ("a", "b"):
        (folder / "in" / "t" / f"{name}.json").write_bytes(_record())
    collect(folder / "in", folder / "out", ["t"])
    return (folder / "out" / "t.jsonl").read_bytes()


@functools.cache
def _model_parts() -> tuple[Any, Any]:
    import filtrax

    model = filtrax.StateSpaceModel(
        process=_same,
        process_noise=filtrax.constant_noise([1.0, 1.0]),
        observe=_same,
        sensor=filtrax.DirectSensor(filtrax.constant_noise([1.0, 1.0])),
    )
    return filtrax.ExtendedKalmanFilter(), model


def _same(state, inputs):
    del inputs
    return state


def _model(path: Path) -> bytes:
    import filtrax

    filtrax.save(path, *_model_parts())
    return path.read_bytes()


def archive(files: dict[str, bytes], **changes: Any) -> bytes:
    """A gzipped tar archive of some files; `changes` are attributes of the first entry."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            for attribute, value in changes.items():
                setattr(entry, attribute, value)
            changes = {}
            tar.addfile(entry, io.BytesIO(data))
    return target.getvalue()


def _pack() -> bytes:
    return archive({"t/a.json": _record(), "t/b.json": _record()})


def _read_report(path: Path) -> Words:
    return command("report", str(path.parent), "--out", "page.html")


def _read_model(path: Path) -> bool:
    import filtrax

    loaded = filtrax.load(path, *_model_parts())
    right = np.asarray(_model_parts()[1].process_noise.bias)
    return bool((np.asarray(loaded[1].process_noise.bias) == right).all())


def _read_pack(path: Path) -> bool:
    from filtrax.lab.reproduction.records import Results
    from filtrax.lab.reproduction.unpacking import unpack

    inside = path.parent / "inside"
    before = {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}
    try:
        unpack(path, Results(inside))
    finally:
        outside = [p for p in path.parent.rglob("*") if p.is_file() and inside not in p.parents]
        assert {p: p.read_bytes() for p in outside} == before, "files outside were touched"
    return True


def _reader(module: str, function: str) -> Callable[[Path], Any]:
    def read(path: Path) -> None:
        import importlib

        getattr(importlib.import_module(f"filtrax.lab.{module}"), function)(path)

    return read


def _read_cell(path: Path) -> None:
    from filtrax.lab.reproduction.cell_files import read_cell

    read_cell(path, "t")


def _read_collection(path: Path) -> None:
    from filtrax.lab.reproduction.collection import read_collection

    read_collection(path.parent, "t")


def _read_drive(path: Path) -> None:
    from filtrax.lab.tasks.kitti.recordings.files import read_path

    (path.parent / "poses").mkdir()
    path.rename(path.parent / "poses" / "00.txt")
    read_path(path.parent, "00")


def _resumed(path: Path) -> Words:
    return command("train", "--resume", str(path.parent))


READERS: dict[str, Callable[[Path], Any]] = {
    "model.npz": _read_model,
    "evaluation.npz": _read_report,
    "config.toml": _resumed,
    "run.json": _read_report,
    "metrics.jsonl": _read_report,
    "result.json": _read_report,
    "a.png": _reader("tasks.kitti.recordings.images", "read_image"),
    "00.txt": _read_drive,
    "a.json": _reader("tasks.pushing.recordings.trials", "read_trial"),
    "a.h5": _reader("tasks.pushing.recordings.trials", "read_trial"),
    "pushes.csv": _reader("tasks.pushing.recordings.endpoints", "read_endpoints"),
    "shapes.json": _reader("tasks.pushing.recordings.outlines", "read_outlines"),
    "cell.json": _read_cell,
    "t.jsonl": _read_collection,
    "pack": _read_pack,
}
OF_A_RUN = ("evaluation.npz", "config.toml", "run.json", "metrics.jsonl", "result.json")
EACH = 40
"""Damages of each format."""


def files() -> Iterator[Attack]:
    """Damaged files of every format, each with the program that reads it."""
    for name in READERS:
        for seed in range(EACH):
            yield Attack("damaged files", f"{name} {seed}", functools.partial(_file, name, seed))


def _file(name: str, seed: int, folder: Path) -> Any:
    samples = _samples()
    beside = OF_A_RUN if name in OF_A_RUN else ()
    place = folder / "run"
    place.mkdir()
    for other in beside:
        (place / other).write_bytes(samples[other])
    if name == "config.toml":  # a whole configuration may not begin to train
        (place / name).write_bytes(damaged(samples[name], seed) + b"\nno_such_setting = 1\n")
    else:
        (place / name).write_bytes(damaged(samples[name], seed))
    return READERS[name](place / name)


# --- archives -----------------------------------------------------------------------------------

PARTS = ("t", "..", ".", "", "unfinished", "models", "checkpoints", "a", "a.json", "/", "\\", "~")
LAST = ("a.json", "config.toml", "model.npz", "checkpoint-000009.npz", "evil.pth", "..", "a\x01")


def archives() -> Iterator[Attack]:
    """Archives with drawn names, types and sizes of entries."""
    for seed in range(150):
        yield Attack("archives", str(seed), functools.partial(_archive, seed))


def _archive(seed: int, folder: Path) -> Any:
    draw = random.Random(seed)
    parts = [draw.choice(PARTS) for _ in range(draw.randrange(1, 5))]
    name = draw.choice(["", "/"]) + "/".join([*parts, draw.choice(LAST)])
    kinds = [tarfile.REGTYPE] * 4 + [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE]
    changes = {"type": draw.choice(kinds), "linkname": draw.choice(["/etc/passwd", "..", "t"])}
    place = folder / "run"
    place.mkdir()
    (place / "mine").write_text("mine")
    (place / "pack").write_bytes(archive({name: _record(), "t/b.json": _record()}, **changes))
    return _read_pack(place / "pack")


# --- calls of the library -----------------------------------------------------------------------


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


READINGS = {
    "of length 0": _ones(0, 2),
    "a number": 1.0,
    "None": None,
    "text": "text",
    "a list of text": ["x", "y"],
    "an array of text": np.asarray(["a", "b"]),
    "objects": np.asarray([None, {}], object),
    "complex": _ones(3, 2) * 1j,
    "times": np.asarray(["2020-01-01"] * 3, "datetime64[D]"),
    "NaN": np.full((3, 2), np.nan, np.float32),
    "infinite": np.full((3, 2), np.inf, np.float32),
    "too large for single precision": np.full((3, 2), 1e300),
    "three components": _ones(3, 3),
    "one component": _ones(3, 1),
    "a matrix each": _ones(3, 2, 2),
    "no components": _ones(3, 0),
    "a vector": _ones(3),
    "of two lengths": {"a": _ones(3, 2), "b": _ones(4, 2)},
    "an empty tuple": (),
    "ragged": [[1.0], [1.0, 2.0]],
}
OBSERVED = {
    "numbers": _ones(3),
    "too long": np.ones(4, bool),
    "too many components": np.ones((3, 3), bool),
    "a text": "yes",
    "None of two": (np.ones(3, bool), None),
}
MOMENTS = {
    "another size": (_ones(3), np.eye(3, dtype=np.float32)),
    "not square": (_ones(2), _ones(2, 3)),
    "of two sizes": (_ones(2), np.eye(3, dtype=np.float32)),
    "indefinite": (_ones(2), np.diag([1.0, -1.0])),
    "asymmetric": (_ones(2), np.asarray([[1.0, 0.5], [0.0, 1.0]])),
    "NaN": (_ones(2), np.full((2, 2), np.nan)),
    "infinite": (_ones(2), np.diag([np.inf, 1.0])),
    "a number": (1.0, 1.0),
}
BUILDERS: dict[str, Callable[[Any], Any]] = {
    "constant_noise": lambda f: f.constant_noise,
    "Gaussian": lambda f: lambda value: f.Gaussian(value, value),
    "Space": lambda f: f.Space,
    "ParticleFilter": lambda f: f.ParticleFilter,
    "ExtendedKalmanFilter": lambda f: lambda value: f.ExtendedKalmanFilter(iterations=value),
    "Transitions": lambda f: f.Transitions,
    "DirectSensor": lambda f: f.DirectSensor,
    "Trajectory": lambda f: lambda value: f.Trajectory(_ones(2), np.eye(2), value),
}
ARGUMENTS = {
    "-1": -1,
    "0": 0,
    "NaN": float("nan"),
    "minus one each": [-1.0, -1.0],
    "NaN each": [float("nan")] * 2,
    "infinite": [float("inf")] * 2,
    "nothing": [],
    "text": "text",
    "None": None,
    "complex": [1j, 1.0],
    "cubic": _ones(2, 2, 2),
    "rows of two sizes": [[1.0], [1.0, 2.0]],
    "negative variances": [[-1.0, 0.0], [0.0, 1.0]],
    "asymmetric": [[1.0, 0.9], [0.0, 1.0]],
}


def _run(**changes: Any) -> Callable[[Path], Any]:
    def run(folder: Path) -> None:
        import filtrax

        del folder
        filt, model = _model_parts()
        given = {"readings": _ones(3, 2), "moments": (_ones(2), np.eye(2)), **changes}
        prior = filtrax.Gaussian(*given.pop("moments"))
        result = filtrax.run(filt, model, prior, given.pop("readings"), **given)
        if not bool(np.asarray(result.info.finite).all()):
            return
        assert np.isfinite(np.asarray(result.beliefs.mean)).all(), "not finite in silence"
        raise AssertionError("a bad call was taken")

    return run


def _build(name: str, value: Any) -> Callable[[Path], Any]:
    def run(folder: Path) -> None:
        import filtrax

        del folder
        BUILDERS[name](filtrax)(value)

    return run


def calls() -> Iterator[Attack]:
    """Calls of the library with wrong shapes, types and values."""
    for name, readings in READINGS.items():
        yield Attack("library calls", f"readings {name}", _run(readings=readings))
    for name, observed in OBSERVED.items():
        yield Attack("library calls", f"observed {name}", _run(observed=observed))
    for name, moments in MOMENTS.items():
        yield Attack("library calls", f"prior {name}", _run(moments=moments))
    for name in BUILDERS:
        for label, value in ARGUMENTS.items():
            yield Attack("library calls", f"{name} {label}", _build(name, value))


def all_attacks() -> list[Attack]:
    """All attacks, in the order of the figures."""
    groups = (words, settings, toml, files, archives, calls)
    return [attack for group in groups for attack in group()]


def sample(attacks: list[Attack], count: int = 150) -> list[Attack]:
    """The attacks of quick runs: of each group its share, and at least ten."""
    groups: dict[str, list[Attack]] = {}
    for attack in attacks:
        groups.setdefault(attack.group, []).append(attack)
    left, draw = count - 10 * len(groups), random.Random(0)
    chosen = []
    for alike in groups.values():
        share = 10 + left * len(alike) // len(attacks)
        chosen += draw.sample(alike, min(share, len(alike)))
    return chosen
