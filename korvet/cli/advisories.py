"""Releases of Redis and Valkey in which a Lua script can execute code on the server."""

FIXED: dict[str, dict[tuple[int, ...], tuple[int, ...]]] = {
    "Redis": {
        (6, 2): (6, 2, 22),
        (7, 2): (7, 2, 14),
        (7, 4): (7, 4, 9),
        (8, 0): (8, 0, 6),
        (8, 2): (8, 2, 6),
        (8, 4): (8, 4, 3),
        (8, 6): (8, 6, 3),
    },
    "Valkey": {
        (7, 2): (7, 2, 13),
        (8, 0): (8, 0, 9),
        (8, 1): (8, 1, 8),
        (9, 0): (9, 0, 4),
    },
}
"""First release of each line with the fix of CVE-2026-23631 and of the earlier CVE-2025-49844."""


def vulnerable(name: str, version: str) -> str | None:
    """Return the finding for a server whose Lua has known remote code execution, else None."""
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    fixed = FIXED.get(name, {})
    if not fixed or len(numbers) < 3 or numbers[:2] > max(fixed):
        return None
    needed = fixed.get(numbers[:2])
    if needed is not None and numbers >= needed:
        return None
    later = min(line for line in fixed if line >= numbers[:2])
    advice = ".".join(map(str, needed or fixed[later]))
    return (
        f"{name} {version} has known remote code execution by Lua scripts (CVE-2026-23631): "
        f"upgrade to {advice} or later. A distribution may have fixed it in its own package"
    )
