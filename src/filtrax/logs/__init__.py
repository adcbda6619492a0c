"""Recordings: logs of several streams, read from files, and made into steps of a filter.

Times are whole nanoseconds in a log, and only differences of them reach a filter, so that stamps
since 1970 lose nothing. pyarrow and rosbags are imported when a file needs them.
"""

from filtrax.logs._assembling import read_table
from filtrax.logs._log import Log
from filtrax.logs._report import LogWarning, Report, StreamReport
from filtrax.logs._steps import Layout, Steps
from filtrax.logs._stream import Stream

__all__ = [
    "Layout",
    "Log",
    "LogWarning",
    "Report",
    "Steps",
    "Stream",
    "StreamReport",
    "read_table",
]
