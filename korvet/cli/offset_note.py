"""The sentence about offsets that are times, for the start, `topics create` and `doctor`."""


def of(topics: str) -> str:
    """Return the sentence for topics with this mode."""
    return (
        f"offsets of {topics} are times (offset.mode=time): tools that subtract them show a lag "
        "that is no number of records, and fewer records than the newest N (`kcat -o -N`, AKHQ, "
        "Redpanda Console). `korvet groups describe` counts records; offset.mode=dense is for such "
        "tools"
    )
