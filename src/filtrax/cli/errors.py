"""Error handling of the command line: one sentence and an exit code."""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from filtrax.cli import interrupts, programs

ANYWHERE = ("--debug", "--no-cache")
"""Options of the program that are also accepted after a verb."""

LONGEST = 1200
"""The number of signs from which on a message is shortened."""

USER_ERROR = 2
INTERRUPTED = interrupts.INTERRUPTED


class StoppedError(Exception):
    """The user pressed Ctrl-C; the message says how to continue."""


class Program(TyperGroup):
    """The root command; prints user errors as one sentence and lets all others propagate."""

    def main(self, args: Sequence[str] | None = None, *positional: Any, **options: Any) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in arguments or os.environ.get("FILTRAX_DEBUG", "0") not in ("", "0")
        if "--no-cache" in arguments:
            programs.forget()
        arguments = [argument for argument in arguments if argument not in ANYWHERE] or ["--help"]
        interrupts.said = False
        options["standalone_mode"] = False  # Let exceptions propagate to here.
        try:
            code = super().main(arguments, *positional, **options)
        except Exception as error:
            sentence, code = describe(error, arguments)
            if debug or sentence is None:
                raise
            interrupts.said = code == INTERRUPTED
            say(f"Error: {sentence}" if code == USER_ERROR else sentence)
        if code == INTERRUPTED and not interrupts.said:  # where no verb has its own advice
            interrupts.said = True
            say(f"Interrupted. {interrupts.begin_again()}")
        sys.exit(code if isinstance(code, int) else 0)


def describe(error: Exception, arguments: Sequence[str] = ()) -> tuple[str | None, int]:
    """Returns message and exit code; the message is None unless the user can fix the error.

    `arguments` are those of the command line, to say how it should be.
    """
    if isinstance(error, StoppedError):
        return str(error), INTERRUPTED
    if isinstance(error, typer.Abort):  # which typer makes of an EOFError
        return "A file ended too early: restore it.", USER_ERROR
    text = _sentence(error)
    if text is not None and (names := getattr(error, "missing_plugins", ())):
        added = [part for name in names for part in ("--plugin", name)]
        text += f" Type `{shlex.join(['filtrax', *arguments, *added])}`."
    return (None if text is None else _shortened(" ".join(text.split()))), USER_ERROR


def _sentence(error: Exception) -> str | None:
    usage = getattr(error, "format_message", None)  # Errors of click's parser.
    if usage is not None:
        return _with_help(usage(), getattr(error, "ctx", None))
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + ("" if error.filename is None else f": {error.filename}") + "."
    if isinstance(error, ValueError | OSError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("filtrax"):
        return f"This needs the package {error.name}, which is not installed."
    if isinstance(error, MemoryError):
        return "The memory of this machine is full; smaller data sets or fewer seeds need less."
    if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error):
        return "The memory of the device is full; smaller batches or fewer seeds at once need less."
    return _lack_of_device() if isinstance(error, RuntimeError | AssertionError) else None


def _lack_of_device() -> str | None:
    """Returns a sentence if JAX cannot start on the platform that the user asks for."""
    wanted = os.environ.get("JAX_PLATFORMS")
    if not wanted or "jax" not in sys.modules:
        return None
    try:
        sys.modules["jax"].devices()
    except (RuntimeError, AssertionError):
        return (
            f"JAX_PLATFORMS is {wanted!r}, but JAX finds no such device here: unset it to train on "
            "what there is, or install JAX for the device, as in `pip install 'filtrax[cuda]'`."
        )
    return None


def _shortened(text: str) -> str:
    """Leaves out the middle of what is longer than a sentence should be, like a quoted value."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 4 :]}"


def _with_help(message: str, context: Any) -> str:
    # Names that no file can have end in an error of Python.
    message = re.sub(
        "Value error, (embedded null byte|.* codec .*)", "no file has this name", message
    )
    advice = "" if context is None else f" `{context.command_path} --help` shows what there is."
    return message.rstrip(".") + "." * (not message.rstrip().endswith("?")) + advice


def say(sentence: str) -> None:
    """Prints a sentence in red to stderr, without wrapping."""
    Console(stderr=True, soft_wrap=True).print(Text(sentence, style="red"))


@contextlib.contextmanager
def interruptible(advice: Callable[[], str]) -> Iterator[None]:
    """Turns Ctrl-C into a `StoppedError` that says how to continue, as `advice` does by then."""
    interrupts.advice = advice
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError(f"Interrupted. {advice()}") from error
