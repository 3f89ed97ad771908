"""When the append-only file of our own Redis is brought to disk, and when it is written anew.

A server that syncs its file itself, once a second, puts off writing while a sync takes long, up to
two seconds, and answers all the same: what it had acknowledged then was lost with its process, on
a busy disk. Told not to sync, it writes before it answers, always; its owner syncs for it.

A rewrite makes the file shorter, and a restart faster; but it takes one core from those who write,
and a log is hardly smaller rewritten than written. A server left to itself does it whenever the
file has doubled: a gigabyte in one go would be written three times over.

Rules
- Synced once a second, whatever the server is doing: a power failure costs no more than before.
- A file that has doubled is rewritten as soon as little is written: looked at now and then.
- Where much is written all the time the server does it by itself, once the file is eight times
  what it was.
- Below WORTH it is never done: a restart replays that in a moment.
"""

import os
from pathlib import Path

from korvet.embedded_redis.socket import ask

SYNC_S = 1.0
LOOK_S = 20.0
"""How often to look whether a rewrite is due."""
WORTH = 512 << 20
GROWN = 2
QUIET_KB_S = 1024.0

_to_disk = getattr(os, "fdatasync", os.fsync)

IDENT = "korvet"
"""By this a broker that waits for the disk knows a server of ours, which would never tell it."""

SETTINGS = (
    ("appendfsync", "no"),
    ("syslog-ident", IDENT),
    ("auto-aof-rewrite-percentage", "700"),
    # What a restart may have to replay record by record, at some 4 us each.
    ("auto-aof-rewrite-min-size", "2gb"),
)


def sync(directory: Path) -> None:
    """What a server in the directory has written before is on disk. Raises OSError."""
    written = [directory / "appendonly.aof", *(directory / "appendonlydir").glob("*.incr.aof")]
    for path in written:
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # an older server keeps one file, a newer one several, and rewrites them
        try:
            _to_disk(file)
        finally:
            os.close(file)


def tidy(socket: Path) -> bool:
    """Whether a rewrite began: it was worth it, and the server has time for it."""
    due = is_due(ask(socket, b"INFO persistence") + ask(socket, b"INFO stats"))
    return due and ask(socket, b"BGREWRITEAOF").startswith(b"+")


def is_due(told: bytes) -> bool:
    """Whether what INFO tells of persistence and stats says so."""
    lines = (line.partition(b":") for line in told.splitlines())
    known = {name: value for name, colon, value in lines if colon}
    if known.get(b"aof_enabled") != b"1" or b"instantaneous_input_kbps" not in known:
        return False
    if known[b"aof_rewrite_in_progress"] != b"0":
        return False
    size, base = int(known[b"aof_current_size"]), int(known[b"aof_base_size"])
    busy = float(known[b"instantaneous_input_kbps"]) >= QUIET_KB_S
    return size >= max(WORTH, GROWN * base) and not busy
