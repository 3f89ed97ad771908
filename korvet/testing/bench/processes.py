"""Read CPU time and resident memory of process trees (broker and Redis) from /proc."""

import os
from collections.abc import Iterable
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(roots: Iterable[int]) -> set[int]:
    """Return the running processes among `roots` and all their descendants."""
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
    """Return the CPU seconds of the tree so far, including children that ended."""
    stats = [_stat(pid) for pid in tree(roots)]
    return sum(sum(map(int, fields[11:15])) for fields in stats if fields) / TICK


PARTS = ("redis", "broker", "threads")


def seconds_by_part(roots: Iterable[int]) -> dict[str, float]:
    """Return the CPU seconds so far of Redis, of the brokers' main threads, and of the others."""
    found = dict.fromkeys(PARTS, 0.0)
    for pid in tree(roots):
        whole = _seconds(_stat(pid))
        if not _name(pid).startswith("python"):
            found["redis"] += whole
            continue
        main = _seconds(_stat(pid, f"task/{pid}/"))
        found["broker"] += main
        found["threads"] += whole - main
    return found


def _seconds(fields: list[str]) -> float:
    return sum(map(int, fields[11:13])) / TICK if fields else 0.0


def java_seconds(roots: Iterable[int]) -> float:
    """Return the CPU seconds of the tree's Java processes, without their children."""
    stats = {pid: _stat(pid) for pid in tree(roots) if _name(pid) == "java"}
    return sum(sum(map(int, fields[11:13])) for fields in stats.values() if fields) / TICK


def resident_bytes(roots: Iterable[int]) -> int:
    """Return the resident memory of the tree; shared pages count once per process."""
    return sum(own_bytes(pid) for pid in tree(roots))


def own_bytes(pid: int) -> int:
    """Return the resident memory of one process, 0 if it ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def largest_worker(roots: Iterable[int]) -> int:
    """Return the max peak resident memory of a Python process below `roots`, bytes."""
    largest = 0
    for pid in tree(roots) - set(roots):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in lines)
        if fields["Name"].startswith("python"):
            largest = max(largest, int(fields.get("VmHWM", "0 kB").split()[0]) << 10)
    return largest


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int, part: str = "") -> list[str]:
    try:
        text = Path(f"/proc/{pid}/{part}stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
