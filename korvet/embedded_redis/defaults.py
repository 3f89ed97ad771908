"""Settings whose default differs with the embedded server: tiered storage and its budget.

Rules
- They are defaults: a value that is given, in a file or by --set, wins.
- remote.log.storage.system.enable=false switches tiered storage off. The memory budget stays:
  without it the log could grow until the system ends processes.
"""

from pathlib import Path

from korvet.config.values import Settings
from korvet.embedded_redis.memory import available_memory

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
