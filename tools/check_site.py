"""Checks the documentation site as it was built.

    python tools/check_site.py runs/site

Refused are: a link or picture whose file or anchor does not exist, a page that no other links to,
anything that a page loads from elsewhere, an equation that was not typeset, a directive that was
not replaced, and a public name without an entry in the API reference.
"""

import importlib
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

SOURCE = Path(__file__).parents[1] / "src" / "filtrax"
INTERNAL = {"accelerate", "cli", "lab", "linalg"}
"""Packages that the API reference leaves out. It covers `__all__` of all others."""

VERBATIM = re.compile(r"<(pre|code|annotation)\b.*?</\1>", re.DOTALL)
LEFT = {
    'class="arithmatex">\\': "an equation is not typeset",
    "<p>:::": "a directive of the API was not replaced",
    "<autoref": "a reference to the API was not replaced",
    "][": "a reference to the API was not replaced",
}
"""Text that no page should have left outside of code, and what is wrong with it."""


class Page(HTMLParser):
    """The anchors and links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes what a tag defines, links to and loads."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        stylesheet = tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload")
        source = values.get("href") if stylesheet else values.get("src")
        if source:
            self.loads.append(source)


def problems(site: Path) -> list[str]:
    """All problems of a site, in sentences."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    linked = {there for path, page in pages.items() for there in targets(page, path) - {path}}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        if name.name == "404.html":  # its links begin at the root of wherever the site is served
            continue
        if path not in linked:
            found.append(f"{name}: no page links to it; add it to `nav` in zensical.toml")
        found += [f"{name}: {link} leads nowhere" for link in page.links if dead(link, path, pages)]
        for link in page.loads:
            if urlsplit(link).netloc:
                found.append(f"{name}: loads {link}")
            elif dead(link, path, pages):
                found.append(f"{name}: {link} is not there")
        text = VERBATIM.sub("", path.read_text(encoding="utf-8"))
        found += [f"{name}: {complaint}" for mark, complaint in LEFT.items() if mark in text]
    anchors = {anchor for page in pages.values() for anchor in page.anchors}
    found += [f"api: {name} has no entry" for name in public_names() if name not in anchors]
    return found


def targets(page: Page, path: Path) -> set[Path]:
    """The files that a page links to."""
    return {(path.parent / unquote(urlsplit(link).path)).resolve() for link in page.links}


def dead(link: str, page: Path, pages: dict[Path, Page]) -> bool:
    """Tells whether an internal link has no target."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return True
    anchor = unquote(parts.fragment)
    return bool(anchor) and target in pages and anchor not in pages[target].anchors


def public_names() -> list[str]:
    """The names that the API reference has to explain, each once, without modules."""
    folders = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
    packages = [f"filtrax.{name}" for name in folders if name not in INTERNAL]
    names: dict[int, str] = {}
    for package in ["filtrax", *packages]:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, ModuleType):
                names.setdefault(id(value), f"{package}.{name}")
    return list(names.values())


if __name__ == "__main__":
    complaints = problems(Path(sys.argv[1]))
    sys.exit("\n".join(complaints) if complaints else 0)
