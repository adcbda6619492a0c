"""How long everything takes: measurements, floors, peers, records, and the page of them."""

from filtrax.lab.bench.page import write_page
from filtrax.lab.bench.running import run_suite
from filtrax.lab.bench.suites import SUITES

__all__ = ["SUITES", "run_suite", "write_page"]
