"""`python -m filtrax` is the command line."""

from filtrax.cli import main

if __name__ == "__main__":
    main()
