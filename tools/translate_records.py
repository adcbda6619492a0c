"""Translates collections of records from version 1 of their format to version 2.

    python tools/translate_records.py studies/kloss2021

Each file is read back, and must give exactly the records of before.
"""

import json
import sys
from pathlib import Path
from typing import Any

from filtrax.lab.reproduction.collection import as_text, read_collection


def read_first_version(path: Path) -> dict[str, dict[str, Any]]:
    """The records of a file of version 1, in which `$ref` stands for a part."""
    head, *others = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if head["version"] != 1:
        sys.exit(f"{path} must have version 1, got {head['version']}.")
    parts = {line["part"]: line["content"] for line in others if "part" in line}

    def resolved(value: Any) -> Any:
        if isinstance(value, list):
            return [resolved(entry) for entry in value]
        reference = isinstance(value, dict) and set(value) == {"$ref"}
        return parts[value["$ref"]] if reference else value

    records = {}
    for line in others:
        if "name" in line:
            record = line["record"]
            config = {name: resolved(value) for name, value in record["config"].items()}
            origin = dict(record["origin"])
            origin = parts[origin.pop("$ref")] | origin
            records[line["name"]] = record | {"origin": origin, "config": config}
    return records


def main() -> None:
    """Translates all files of a folder, and says their sizes."""
    for path in sorted(Path(sys.argv[1]).glob("*.jsonl")):
        records, before = read_first_version(path), path.stat().st_size
        path.write_text(as_text(path.stem, records), encoding="utf-8")
        again = read_collection(path.parent, path.stem)
        if json.dumps(again, sort_keys=True) != json.dumps(records, sort_keys=True):
            sys.exit(f"{path} must give the records of before, and gives others.")
        print(f"{path.name}: {len(records)} records, {before} → {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
