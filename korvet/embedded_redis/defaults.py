"""Settings whose default differs with the embedded server: tiered storage and its budget.

Rules
- They are defaults: a value that is given, in a file or by --set, wins.
- remote.log.storage.system.enable=false switches tiered storage off. The memory budget stays:
  without it the log could grow until the system ends processes.
"""

import os
from contextlib import suppress
from pathlib import Path

from korvet.config.values import Settings

UNLIMITED = 1 << 62
"""Version 1 of control groups reports no limit as a number near 2^63."""


def available_memory(
    groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Return the bytes that processes here may use, or None if the system does not say."""
    limits = [*group_limits(groups, mounted)]
    with suppress(ValueError, OSError, AttributeError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min((limit for limit in limits if limit > 0), default=None)


def group_limits(groups: Path, mounted: Path) -> list[int]:
    """Return the limits of this process's control groups and all above them.

    A container may see a path of its host that it cannot open: the limit is then at the mount.
    """
    found: list[int] = []
    for hierarchy, path in _memory_groups(groups):
        root, name = mounted, "memory.max"
        if hierarchy != "0":
            root, name = mounted / "memory", "memory.limit_in_bytes"
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                with suppress(OSError, ValueError):  # `max` is no limit
                    found.append(int((folder / name).read_text()))
    return [limit for limit in found if limit < UNLIMITED]


def _memory_groups(groups: Path) -> list[tuple[str, str]]:
    """Return hierarchy number and path of the groups that can limit memory; 0 is version 2."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return []
    rows = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return [
        (number, path)
        for number, names, path in rows
        if number == "0" or "memory" in names.split(",")
    ]


SYSTEM = "remote.log.storage.system.enable"
BUDGET = "local.memory.bytes"
LITTLE_MEMORY = 2 << 30
"""Bytes of memory below which the budget is a quarter of it: the broker needs about 200 MB, and a
rewrite of the append-only file under load copies up to all pages."""
FOLDER = "segments"
"""Folder of the data directory for segments and snapshots of the metadata."""


def defaults(settings: Settings, data_dir: Path) -> dict[str, str]:
    """Return the defaults with the embedded server in that directory."""
    found: dict[str, str] = {}
    memory = available_memory()
    if memory is not None:
        found[BUDGET] = str(memory // (2 if memory >= LITTLE_MEMORY else 4))
    if settings.describe(SYSTEM).is_default or settings.flag(SYSTEM):
        found |= {
            SYSTEM: "true",
            "remote.storage.url": (data_dir / FOLDER).absolute().as_uri(),
            "log.remote.storage.enable": "true",
        }
    return found
