"""CPU time and resident memory of a broker and all its children (its Redis too), from /proc."""

import os
from collections.abc import Iterable
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(roots: Iterable[int]) -> set[int]:
    """The processes given and everything below them that is alive."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                parents[int(entry.name)] = int(fields[1])
    found = {pid for pid in roots if pid in parents}
    grown = True
    while grown:
        below = {pid for pid, parent in parents.items() if parent in found}
        grown = not below <= found
        found |= below
    return found


def cpu_seconds(roots: Iterable[int]) -> float:
    """User and system time of the tree so far, and of its children that have ended."""
    stats = [_stat(pid) for pid in tree(roots)]
    return sum(sum(map(int, fields[11:15])) for fields in stats if fields) / TICK


def java_seconds(roots: Iterable[int]) -> float:
    """User and system time of the Java processes of the tree, without that of their children."""
    stats = {pid: _stat(pid) for pid in tree(roots) if _name(pid) == "java"}
    return sum(sum(map(int, fields[11:13])) for fields in stats.values() if fields) / TICK


def resident_bytes(roots: Iterable[int]) -> int:
    """Resident memory of the tree; pages that processes share count in each."""
    return sum(own_bytes(pid) for pid in tree(roots))


def own_bytes(pid: int) -> int:
    """Resident memory of one process, 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def largest_worker(roots: Iterable[int]) -> int:
    """The most resident memory that any Python process below these has had, in bytes."""
    most = 0
    for pid in tree(roots) - set(roots):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        told = dict(line.split(":\t", 1) for line in lines)
        if told["Name"].startswith("python"):
            most = max(most, int(told.get("VmHWM", "0 kB").split()[0]) << 10)
    return most


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
