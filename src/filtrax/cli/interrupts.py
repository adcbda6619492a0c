"""Ctrl-C: the first one ends what runs in good order, the second one ends the process at once."""

import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

INTERRUPTED = 130


def begin_again() -> str:
    """Returns the advice of verbs that leave nothing half done."""
    return "The same command begins again."


advice: Callable[[], str] = begin_again
"""Says how to continue after an interrupt; verbs replace it."""

said = False
"""True once the user has been told that the command was interrupted."""


def handle() -> None:
    """Installs the handler in this process, unless its parent has it ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _first)


def _first(number: int, frame: Any) -> NoReturn:
    signal.signal(signal.SIGINT, _second)
    raise KeyboardInterrupt


def _second(number: int, frame: Any) -> NoReturn:
    # Cleaning up would have to wait for compilers, and be interrupted with a traceback.
    if not said:
        os.write(2, f"\nInterrupted. {advice()}\n".encode())
    os._exit(INTERRUPTED)
