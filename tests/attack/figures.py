"""Runs all attacks, prints those that end badly, and writes the table of `docs/reliability.md`.

    python tests/attack/figures.py [--write docs/reliability.md]

It ends with code 1 if any attack ends badly. `make attack` runs it.
"""

import argparse
import collections
import re
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "lab")]

from attack import attacks

BEGIN, END = "<!-- attacks -->", "<!-- end of attacks -->"


def table(counts: dict[str, collections.Counter]) -> str:
    """One row for each group of attacks, and one for all."""
    kinds = (attacks.SENTENCE, attacks.ANSWER, attacks.BAD)
    lines = ["| Bad inputs | Tried | One sentence | Right answer | Bad |", "|---|---|---|---|---|"]
    rows = {**counts, "**together**": sum(counts.values(), collections.Counter())}
    for name, row in rows.items():
        numbers = [row.total(), *(row[kind] for kind in kinds)]
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def main() -> int:
    """Runs all attacks; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    counts: dict[str, collections.Counter] = {}
    began, seen = time.monotonic(), set()
    for attack in attacks.all_attacks():
        if arguments.only not in str(attack):
            continue
        with tempfile.TemporaryDirectory() as folder:
            end, said = attacks.judge(attack, Path(folder))
        counts.setdefault(attack.group, collections.Counter())[end] += 1
        if end == attacks.BAD and said[:80] not in seen:
            seen.add(said[:80])
            print(f"{attack}: {said[:300]}", flush=True)
    text = table(counts)
    print(f"{text}\n{time.monotonic() - began:.0f} s")
    if arguments.write is not None:
        page = arguments.write.read_text(encoding="utf-8")
        pattern = f"{re.escape(BEGIN)}.*?{re.escape(END)}"
        page = re.sub(pattern, lambda _: f"{BEGIN}\n{text}\n{END}", page, flags=re.DOTALL)
        arguments.write.write_text(page, encoding="utf-8")
    return int(any(row[attacks.BAD] for row in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
