"""`python -m korvet` and the `korvet` command."""

import sys


def main() -> None:
    """Runs the command line and exits with its code."""
    from korvet.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
