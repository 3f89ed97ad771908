"""`python -m korvet` and the `korvet` command.

Python older than 3.11 must be able to parse this file and `korvet/__init__.py`.
"""

import sys
from typing import Optional, Tuple  # noqa: UP035

from korvet import __version__

OLDEST = (3, 11)
FAILED = 2
"""The exit code of a command that failed."""


def too_old(version: Tuple[int, ...]) -> Optional[str]:  # noqa: UP006, UP045
    """Return why that version of Python cannot run Korvet, or None if it can."""
    if version >= OLDEST:
        return None
    return (
        "Korvet needs Python %d.%d or newer, and this is Python %d.%d: run it with another Python, "  # noqa: UP031
        "for example `python3.11 -m korvet`." % (*OLDEST, *version[:2])
    )


def main() -> None:
    """Run the command line and exit with its code."""
    reason = too_old(tuple(sys.version_info[:3]))
    if reason is None:
        if sys.argv[1:] == ["--version"]:
            # Importing the commands takes five times as long as all of this.
            sys.stdout.write("korvet %s\n" % __version__)  # noqa: UP031
            return
        try:
            from korvet.cli import run
        except ImportError as error:
            if (error.name or "").partition(".")[0] == "korvet":
                raise
            reason = "{}: install Korvet again, with this Python: {} -m pip install".format(  # noqa: UP032
                error, sys.executable
            )
    if reason is not None:
        sys.stderr.write("korvet: " + " ".join(reason.split()) + "\n")
        sys.exit(FAILED)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
