"""Exchanging two directories in one step, as Linux can (renameat2)."""

import ctypes
import os
from pathlib import Path

from korvet.pipeline.errors import PipelineError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def swap(one: Path, other: Path) -> None:
    """Each directory is where the other was; nobody sees a moment without either."""
    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is None:
        raise PipelineError(
            "--compact of Parquet needs Linux (renameat2). Delta and Iceberg do not."
        )
    failed = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if failed:
        code = ctypes.get_errno()
        raise PipelineError(
            f"{other} cannot be exchanged on this file system: {os.strerror(code)}."
        )
