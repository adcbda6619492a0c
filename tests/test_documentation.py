"""What a reader reads is run: examples as scripts, Markdown block by block.

Each runs in a fresh process with JAX as a user has it, not with the strict settings of the other
tests. Rejected are: a name or signature that changed in the code and not in the text, an example
that grew too long to read, a link to a file that moved, a public name that is explained nowhere.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import filtrax

pytestmark = pytest.mark.documentation

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES += sorted(ROOT.glob("docs/**/*.md"))

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def run_as_user(program: str, folder: Path) -> str:
    """Runs a program in a process of its own and returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def blocks_as_program(page: Path) -> str:
    """All Python blocks of a page at their own line numbers, so that errors point into it."""
    text = page.read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code = block.group(1).splitlines()
        lines[first : first + len(code)] = code
    source = "\n".join(lines)
    return f"exec(compile({source!r}, {relative(page)!r}, 'exec'), {{'__name__': '__main__'}})"


def test_there_is_something_to_run():
    assert len(EXAMPLES) >= 5
    assert all(page.is_file() for page in PAGES)


@pytest.mark.parametrize("example", EXAMPLES, ids=relative)
def test_example_is_short_runs_and_says_something(example, tmp_path):
    source = example.read_text()
    assert len(source.splitlines()) < 60
    assert source.startswith('"""')
    assert run_as_user(source, tmp_path).strip()


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=relative)
def test_blocks_run_in_order(page, tmp_path):
    run_as_user(blocks_as_program(page), tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_relative_links_lead_somewhere(page):
    prose = FENCED.sub("", page.read_text())
    targets = [link for link in LINK.findall(prose) if "://" not in link]
    missing = [link for link in targets if not (page.parent / link.partition("#")[0]).exists()]
    assert not missing


@pytest.mark.parametrize(
    "module", [filtrax, filtrax.losses, filtrax.metrics, filtrax.resampling, filtrax.training]
)
def test_every_public_name_is_explained(module):
    """A name counts where it stands as code, so that `run` is not found in "they run"."""
    text = "\n".join(page.read_text() for page in PAGES)
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
    names = getattr(module, "__all__", ["mixed", "mixture_nll", "nll", "squared_error"])
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []
