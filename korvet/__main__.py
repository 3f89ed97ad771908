"""`python -m korvet` and the `korvet` command."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from korvet.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
