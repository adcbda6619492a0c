"""Reports on runs as one self-contained HTML page that needs no network."""

from filtrax.lab.report.page import write

__all__ = ["write"]
