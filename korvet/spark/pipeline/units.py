"""Parse durations and sizes given as options."""

from korvet.spark.option_text import parse_duration, parse_size
from korvet.spark.pipeline.errors import PipelineError


def milliseconds(option: str, text: str) -> int:
    """Return a duration in ms; a number without a unit is refused."""
    found = None if text.strip().isdigit() else parse_duration(text)
    if found is None:
        raise PipelineError(f"{option} must be a time such as 30s, 5m, 2h or 7d, not {text!r}.")
    return found


def size(option: str, text: str) -> int:
    """Return a size in bytes."""
    found = parse_size(text)
    if not found:
        raise PipelineError(f"{option} must be a size such as 128m, not {text!r}.")
    return found
