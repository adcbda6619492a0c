"""How long everything takes: measurements, floors, peers, records, and the page of them."""

from filtrax.bench.page import write_page
from filtrax.bench.running import run_suite
from filtrax.bench.suites import SUITES

__all__ = ["SUITES", "run_suite", "write_page"]
