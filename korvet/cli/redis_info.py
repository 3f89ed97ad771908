"""The fields of an INFO reply, and sizes in words."""


def parse_info(text: str) -> dict[str, str]:
    """Return the fields of an INFO reply by name."""
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value.strip() for name, colon, value in pairs if colon}


def size(count: int) -> str:
    """Return a number of bytes in the largest unit that fits."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
