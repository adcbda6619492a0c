"""Checks the documentation site as it was built.

    python tools/check_site.py runs/site

Refused are: a link or picture whose file or anchor does not exist, anything that a page loads from
elsewhere, an equation that was not typeset, a directive that was not replaced, and a public name
without an entry in the API reference.
"""

import importlib
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

PUBLIC = ("", ".filters", ".training", ".metrics", ".resampling", ".novelty")
"""The packages whose `__all__` the API reference has to cover."""


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
    """What is wrong with a site, in sentences."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        if name.name == "404.html":  # its links begin at the root of wherever the site is served
            continue
        found += [f"{name}: {link} leads nowhere" for link in page.links if dead(link, path, pages)]
        for link in page.loads:
            if urlsplit(link).netloc:
                found.append(f"{name}: loads {link}")
            elif dead(link, path, pages):
                found.append(f"{name}: {link} is not there")
        text = path.read_text(encoding="utf-8")
        if re.search(r'class="arithmatex">\\[(\[]', text):
            found.append(f"{name}: an equation is not typeset")
        if re.search(r"<p>:::|<autoref|\]\[", re.sub(r"<(pre|code|annotation).*?</\1>", "", text, flags=re.DOTALL)):
            found.append(f"{name}: a directive or reference was not replaced")
    anchors = {anchor for page in pages.values() for anchor in page.anchors}
    found += [f"api: {name} has no entry" for name in public_names() if name not in anchors]
    return found


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
    names: dict[int, str] = {}
    for suffix in PUBLIC:
        module = importlib.import_module(f"filtrax{suffix}")
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, ModuleType):
                names.setdefault(id(value), f"filtrax{suffix}.{name}")
    return list(names.values())


if __name__ == "__main__":
    complaints = problems(Path(sys.argv[1]))
    sys.exit("\n".join(complaints) if complaints else 0)
