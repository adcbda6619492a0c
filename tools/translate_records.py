"""Puts the records of `results/paper`, a file for each cell, into one file for each table.

    python tools/translate_records.py results/paper studies/kloss2021

Proves that nothing is lost: every record reads back as it was, and the page of results has the
same text.
"""

import json
import sys
from pathlib import Path

from filtrax.lab.reproduction.collection import collect, read_collection
from filtrax.lab.reproduction.display.page import page_is_current
from filtrax.lab.reproduction.tables import table_names


def main() -> None:
    """Translates all tables."""
    source, target = map(Path, sys.argv[1:3])
    count = collect(source, target, table_names())
    paths = sorted(source.glob("*/*.json"))
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        assert read_collection(target, path.parent.name)[path.stem] == record, path
    assert count == len(paths), (count, len(paths))
    assert page_is_current(target, Path("docs/reproduction.md"))
    sys.stdout.write(f"{count} records of {len(table_names())} tables, and the page is the same.\n")


if __name__ == "__main__":
    main()
