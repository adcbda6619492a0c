"""Finds docstrings and comments that begin with a word of a riddle, like "That" or "Whether".

    python tools/voice.py src examples

A docstring begins with a verb or a noun phrase that can be understood alone. The script prints a
line for each finding, path:line: text, and exits with 1 if there is any. Docstrings are the strings
that stand alone as the first statement of a module, class or function, or directly below an
attribute. Of a comment over several lines only the first line is checked.
"""

import argparse
import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

FORBIDDEN = re.compile(r"(That|What|Of|Whether|In what|By how)\b")


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line number and text of all strings that are statements."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield node.lineno, text.strip()


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of comments, without those that continue the line above."""
    last = None
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                if last != (line - 1, column):
                    yield line, token.string.lstrip("#: ")
                last = line, column


def findings(path: Path) -> list[str]:
    """All findings in a file, sorted by line."""
    source = path.read_text(encoding="utf-8")
    texts = sorted([*docstrings(source), *comments(path)])
    return [f"{path}:{line}: {t.splitlines()[0]}" for line, t in texts if FORBIDDEN.match(t)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Check how docstrings and comments begin.")
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("src")])
    files = sorted({p for folder in parser.parse_args().folders for p in folder.rglob("*.py")})
    found = [finding for path in files for finding in findings(path)]
    sys.stdout.writelines(f"{finding}\n" for finding in found)
    sys.exit(bool(found))
