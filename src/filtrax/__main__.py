"""`python -m filtrax` is the command line."""

import os
import sys


def main() -> None:
    """Runs the command line; Ctrl-C is answered with a sentence even while it is imported."""
    try:
        from filtrax.cli import main
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. The same command begins again.\n")
        sys.stderr.flush()
        os._exit(130)
    main()


if __name__ == "__main__":
    main()
