"""The configurations that come with filtrax, by name."""

from pathlib import Path

from filtrax._checks import check_known
from filtrax.lab.config.parsing import ConfigurationError

_LAB = Path(__file__).parents[1]
_FOLDERS = (_LAB / "configs", _LAB.parents[2] / "configs")
"""The folder in an installed package, and the one of a clone."""


def shipped() -> dict[str, Path]:
    """Returns the paths of all configurations that come with filtrax, by name."""
    folder = next((path for path in _FOLDERS if path.is_dir()), None)
    paths = [] if folder is None else sorted(folder.glob("*.toml"))
    return {path.stem: path for path in paths}


def find(path: Path) -> Path:
    """Returns a configuration by its path, or else one that comes with filtrax by its name."""
    given = str(path)
    if path.is_file() or path.suffix or path.name != given or given in ("", "..", "."):
        return path
    known = shipped()
    if given not in known and path.is_dir():
        return path  # reading it says what a folder is not
    try:
        check_known(
            "A configuration must be a file, or have the name of one that comes with filtrax",
            {given} - {*known},
            [*known],
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    return known[given]
