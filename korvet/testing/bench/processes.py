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
            fields = stat(int(entry.name))
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
    stats = [stat(pid) for pid in tree(roots)]
    return sum(sum(map(int, fields[11:15])) for fields in stats if fields) / TICK


def resident_bytes(roots: Iterable[int]) -> int:
    """Return the resident memory of the tree; shared pages count once per process."""
    return sum(own_bytes(pid) for pid in tree(roots))


def own_bytes(pid: int) -> int:
    """Return the resident memory of one process, 0 if it ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def name_of(pid: int) -> str:
    """Return the name of a process, empty if it ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def stat(pid: int, part: str = "") -> list[str]:
    """Return the fields of a process's or a thread's stat after its name, none if it ended."""
    try:
        text = Path(f"/proc/{pid}/{part}stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
