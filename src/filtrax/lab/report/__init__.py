"""One HTML page that shows what runs learned: it opens from disk and needs no network."""

from filtrax.lab.report.page import write

__all__ = ["write"]
