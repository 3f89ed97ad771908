"""Swap two directories atomically with Linux's renameat2."""

import ctypes
import os
from pathlib import Path

from korvet.pipeline.errors import PipelineError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def swap_directories(one: Path, other: Path) -> None:
    """Swap the two directories; each path exists at all times."""
    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is None:
        raise PipelineError(
            "--compact of a Parquet archive needs Linux (renameat2); Delta and Iceberg do not."
        )
    failed = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if failed:
        code = ctypes.get_errno()
        raise PipelineError(f"{other} cannot be swapped on this file system: {os.strerror(code)}.")
