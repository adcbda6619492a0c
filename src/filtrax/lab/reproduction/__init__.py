"""Tables of experiments, compared with the numbers and claims of the paper.

A table is one TOML file in `tables/`. It is a grid of cells, each of which is an experiment of its
own. The records of its cells are shown beside the paper's numbers, and its claims are judged by
rules.
"""

from filtrax.lab.reproduction.claims import Claim, Rule, Verdict, judge
from filtrax.lab.reproduction.collection import collect
from filtrax.lab.reproduction.display.page import write_pages
from filtrax.lab.reproduction.display.terminal import print_table
from filtrax.lab.reproduction.packing import pack
from filtrax.lab.reproduction.plan import Plan
from filtrax.lab.reproduction.records import Results, read_records
from filtrax.lab.reproduction.running import reproduce
from filtrax.lab.reproduction.tables import (
    SCALES,
    Adjustment,
    Average,
    Axis,
    Cell,
    Start,
    Table,
    Value,
    read_table,
    table_names,
)
from filtrax.lab.reproduction.unpacking import unpack

__all__ = [
    "SCALES",
    "Adjustment",
    "Average",
    "Axis",
    "Cell",
    "Claim",
    "Plan",
    "Results",
    "Rule",
    "Start",
    "Table",
    "Value",
    "Verdict",
    "collect",
    "judge",
    "pack",
    "print_table",
    "read_records",
    "read_table",
    "reproduce",
    "table_names",
    "unpack",
    "write_pages",
]
