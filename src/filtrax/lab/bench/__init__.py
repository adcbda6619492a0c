"""Benchmarks: timings of filters and training, lower bounds, other libraries, and a page."""

from filtrax.lab.bench.page import write_page
from filtrax.lab.bench.running import run_suite
from filtrax.lab.bench.suites import SUITES

__all__ = ["SUITES", "run_suite", "write_page"]
