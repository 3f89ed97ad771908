"""The state of a file, to find out whether it has changed."""

from pathlib import Path


def file_state(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when the file does; None if it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
