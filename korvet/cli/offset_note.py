"""The sentence about offsets that are times, for the start, `topics create` and `doctor`."""

_REST = (
    "(offset.mode=time): tools that subtract them show a lag that is no number of records. "
    "`korvet groups describe` counts records; offset.mode=dense is for such tools"
)
"""What follows from the mode, where lag is right, and the mode for other tools."""


def of_topic(name: str) -> str:
    """Return the sentence for a new topic whose mode was not chosen."""
    return f"offsets of {name} are times {_REST}"


def of_new_topics() -> str:
    """Return the sentence for a broker that creates topics with this mode."""
    return f"offsets of new topics are times {_REST}"


def of_topics(found: int, every: int) -> str:
    """Return the sentence for a log that has topics with this mode."""
    return f"offsets of {found} of {every} topics are times {_REST}"
