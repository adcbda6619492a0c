"""Modules of a user that register tasks, filters and parts of models.

A plugin is loaded because a user names it on the command line or in a program, never because a
file names it. Records say which plugins were loaded, by name and by the hash of their files, so
that a missing or another one can be told.
"""

import atexit
import dataclasses
import hashlib
import importlib
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_LOADED: dict[str, "Plugin"] = {}


class PluginError(ValueError):
    """A plugin cannot be loaded."""


class MissingPluginError(PluginError):
    """Records need plugins that are not loaded; `missing_plugins` names them."""

    def __init__(self, message: str, names: Sequence[str]):
        super().__init__(message)
        self.missing_plugins = tuple(names)


@dataclasses.dataclass(frozen=True)
class Plugin:
    """A loaded plugin.

    - `name`: the name of a module, or the path of a file, as it was given.
    - `sha256`: the hash of its file.
    - `source`: the content of a file that was given by its path, for processes without the file.
    """

    name: str
    sha256: str
    source: bytes | None = dataclasses.field(default=None, repr=False)

    def record(self) -> dict[str, str]:
        """The entry for records, with no folder of this machine in it."""
        path = Path(self.name)
        return {"name": path.name if path.is_absolute() else self.name, "sha256": self.sha256}


def load(name: str) -> Plugin:
    """Imports a plugin, which registers its classes.

    `name` is that of an importable module, or the path of a file that ends in `.py`. A plugin that
    is loaded already is not imported again.
    """
    if not name.endswith(".py"):
        return _keep(name, _imported(name))
    path = Path(name)
    if not path.is_file():
        raise PluginError(f"There is no plugin at {name}: it must be a file or a module.")
    module, source = _module_of(name), path.read_bytes()
    if not module.isidentifier():
        raise PluginError(f"The plugin {name} must be named like a module: rename the file.")
    known = _LOADED.get(module)
    if known is not None and known.sha256 == _digest(source):
        return known
    if known is not None or _is_another(module, path):
        raise PluginError(
            f"The plugin {name} cannot be imported as {module!r}, because another module has that "
            "name: rename the file."
        )
    return _load_source(name, path, source)


def loaded() -> tuple[Plugin, ...]:
    """Returns all plugins that were loaded in this process."""
    return tuple(_LOADED.values())


def check(records: Any, whose: str) -> list[str]:
    """Compares the plugins in a record, as `Plugin.record` makes them, with those that are loaded.

    Entries of another form are ignored.
    Raises `MissingPluginError` if one is not loaded; returns a sentence for each whose file has
    changed. `whose` says what was made with these plugins.
    """
    given = records if isinstance(records, list) else []
    hashes = {str(e["name"]): e.get("sha256") for e in given if isinstance(e, dict) and "name" in e}
    missing = [name for name in hashes if _module_of(name) not in _LOADED]
    if missing:
        several = "s" if missing[1:] else ""
        raise MissingPluginError(
            f"{whose} was made with the plugin{several} {', '.join(missing)}, which is a "
            "program and imported only if you say so.",
            missing,
        )
    return [
        f"{whose} was made with another version of the plugin {name}."
        for name, digest in hashes.items()
        if digest != _LOADED[_module_of(name)].sha256
    ]


@dataclasses.dataclass(frozen=True)
class Shipped:
    """Plugins for another process: to unpickle this object loads them there.

    It must be the first of what is pickled, because classes of plugins can only be found later.
    Files are sent along, and modules must be installed.
    """

    plugins: tuple[Plugin, ...] = dataclasses.field(default_factory=loaded)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (tuple((p.name, p.source) for p in self.plugins),)


def _received(plugins: Sequence[tuple[str, bytes | None]]) -> Shipped:
    for name, source in plugins:
        if source is None:
            load(name)
        elif _module_of(name) not in _LOADED:
            # A file of its own, so that tracebacks can quote it.
            folder = tempfile.mkdtemp(prefix="filtrax-plugin-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = Path(folder, Path(name).name)
            path.write_bytes(source)
            _load_source(name, path, source)
    return Shipped()


def _module_of(name: str) -> str:
    return Path(name).stem if name.endswith(".py") else name


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _load_source(name: str, path: Path, source: bytes) -> Plugin:
    module = _module_of(name)
    if module not in sys.modules:
        _run(name, module, path, source)
    _LOADED[module] = Plugin(name, _digest(source), source)
    return _LOADED[module]


def _is_another(module: str, path: Path) -> bool:
    """Returns True if the name of a module belongs to another file than this one."""
    there = sys.modules.get(module)
    if there is not None:
        file = getattr(there, "__file__", None)
    else:
        found = importlib.util.find_spec(module)
        if found is None:
            return False
        file = found.origin
    return file is None or not Path(file).is_file() or not path.samefile(file)


def _run(name: str, module: str, path: Path, source: bytes) -> None:
    made = ModuleType(module)
    made.__file__ = str(path)
    sys.modules[module] = made  # dataclasses and pickles look it up there
    try:
        exec(compile(source, str(path), "exec"), made.__dict__)
    except BaseException as error:
        del sys.modules[module]
        if isinstance(error, Exception):
            raise _failed(name, error) from error
        raise


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            advice = f" Did you mean {name}.py?" if Path(f"{name}.py").is_file() else ""
            raise PluginError(
                f"There is no module {name!r} to load as a plugin: it must be installed, or be "
                f"the path of a file that ends in .py.{advice}"
            ) from error
        raise _failed(name, error) from error
    except Exception as error:
        raise _failed(name, error) from error


def _keep(name: str, module: ModuleType) -> Plugin:
    if name not in _LOADED:
        file = getattr(module, "__file__", None)
        content = b"" if file is None else Path(file).read_bytes()
        _LOADED[name] = Plugin(name, _digest(content))
    return _LOADED[name]


def _failed(name: str, error: Exception) -> PluginError:
    reason = f"{_last_line(error, name)}: {type(error).__name__}: {error}"
    return PluginError(f"The plugin {name} cannot be imported{reason.rstrip('.')}.")


def _last_line(error: Exception, name: str) -> str:
    """Says the last line of the plugin in a traceback, if it is a file."""
    trace, number = error.__traceback__, None
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).name == Path(name).name:
            number = trace.tb_lineno
        trace = trace.tb_next
    return "" if number is None else f" (line {number})"
