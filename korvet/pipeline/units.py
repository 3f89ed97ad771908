"""Parse durations and sizes given as options."""

import re

from korvet.pipeline.errors import PipelineError

_TIME = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30}


def milliseconds(option: str, text: str) -> int:
    """Return a duration in ms."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise PipelineError(f"{option} must be a time such as 30s, 5m, 2h or 7d, not {text!r}.")
    return int(found[1]) * _MS[found[2]]


def size(option: str, text: str) -> int:
    """Return a size in bytes."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise PipelineError(f"{option} must be a size such as 128m, not {text!r}.")
    return int(found[1]) << _SHIFT[found[2].lower()]
