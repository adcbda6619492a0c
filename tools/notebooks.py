"""Runs a notebook that is a script with cells, and writes it as a page with its output and figures.

    python tools/notebooks.py notebooks/filter_online.py runs/site_pages/notebooks

Cells begin with `# %%`; those that begin with `# %% [markdown]` are text. Editors open such scripts
as notebooks, and `python` runs them. A cell that raises an error ends the run.
"""

import contextlib
import io
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

CELL = "# %%"
TEXT = "# %% [markdown]"


def cells(source: str) -> list[tuple[bool, str]]:
    """The cells of a script; True with those that are text, which loses its comment signs."""
    lines_of_cells: list[tuple[bool, list[str]]] = []
    for line in source.splitlines():
        if line.startswith(CELL):
            lines_of_cells.append((line.startswith(TEXT), []))
        elif lines_of_cells:
            lines_of_cells[-1][1].append(line)
        elif line.strip():
            raise ValueError(f"A notebook must begin with a cell, `{CELL}`, got {line!r}.")
    return [
        (is_text, "\n".join(_uncommented(line) if is_text else line for line in lines).strip())
        for is_text, lines in lines_of_cells
    ]


def _uncommented(line: str) -> str:
    return line.removeprefix("#").removeprefix(" ")


def page(script: Path, folder: Path) -> Path:
    """Runs a notebook and writes its page and figures to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    parts, names = [], {"__name__": "__main__"}
    for number, (is_text, content) in enumerate(cells(script.read_text(encoding="utf-8"))):
        if is_text:
            parts.append(content)
            continue
        parts.append(f"```python\n{content}\n```")
        output, figures = run(content, f"{script.name}, cell {number}", names)
        if output:
            parts.append(f"```text\n{output}\n```")
        for count, figure in enumerate(figures):
            picture = f"{script.stem}_{number}_{count}.png"
            figure.savefig(folder / picture, dpi=110, bbox_inches="tight")
            parts.append(f"![Figure {count + 1} of this cell]({picture})")
        plt.close("all")
    target = folder / f"{script.stem}.md"
    target.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return target


def run(content: str, place: str, names: dict[str, Any]) -> tuple[str, list[Figure]]:
    """Executes a cell, with warnings as errors; returns its output and the figures it opened."""
    printed = io.StringIO()
    streams = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed)
    with streams[0], streams[1], warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(content, place, "exec"), names)
    return printed.getvalue().strip(), [plt.figure(number) for number in plt.get_fignums()]


if __name__ == "__main__":
    plt.switch_backend("agg")
    sys.stdout.write(f"{page(Path(sys.argv[1]), Path(sys.argv[2]))}\n")
