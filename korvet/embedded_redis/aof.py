"""Settings and rewrites of the append-only file (AOF) of the embedded Redis.

With `appendfsync everysec` a server delays writes while an fsync is slow, up to 2 s, and replies
before it has written: acknowledged writes were lost with its process on a busy disk. With
`appendfsync no` it always writes before it replies, and Korvet calls fsync in its place.

A rewrite shortens the file and speeds up a restart. It takes one core from the writers, and a log
is hardly smaller after it. By default a server rewrites whenever the file has doubled: 1 GB
written at once would be written three times.

Rules
- `disk` syncs once a second, whatever the server is doing.
- Rewrite a file that has doubled when the write rate is low.
- Under constant load the server rewrites by itself, when the file has grown to eight times.
- Never rewrite below MIN_BYTES: a restart replays that in about a second.
"""

from pathlib import Path

from korvet.base.synced_files import IDENT
from korvet.embedded_redis.socket import ask

MIN_BYTES = 512 << 20
"""Smallest file worth a rewrite."""
GROWTH = 2
"""Growth since the last rewrite that makes the next one due."""
QUIET_KB_S = 1024.0
"""Write rate below which a rewrite may start."""

SETTINGS = (
    ("appendfsync", "no"),
    ("syslog-ident", IDENT),
    ("auto-aof-rewrite-percentage", "700"),
    # A restart may have to replay this record by record, at about 4 us each.
    ("auto-aof-rewrite-min-size", "2gb"),
)


def rewrite_if_due(socket: Path) -> bool:
    """Start a rewrite if it is due; return whether one started."""
    due = is_due(ask(socket, b"INFO persistence") + ask(socket, b"INFO stats"))
    return due and ask(socket, b"BGREWRITEAOF").startswith(b"+")


def is_due(info: bytes) -> bool:
    """Return whether INFO persistence and stats say that a rewrite is due."""
    known = parsed(info)
    if known.get(b"aof_enabled") != b"1" or b"instantaneous_input_kbps" not in known:
        return False
    if known[b"aof_rewrite_in_progress"] != b"0":
        return False
    size, base = int(known[b"aof_current_size"]), int(known[b"aof_base_size"])
    busy = float(known[b"instantaneous_input_kbps"]) >= QUIET_KB_S
    return size >= max(MIN_BYTES, GROWTH * base) and not busy


def parsed(info: bytes) -> dict[bytes, bytes]:
    """Return the fields of an INFO reply."""
    lines = (line.partition(b":") for line in info.splitlines())
    return {name: value for name, colon, value in lines if colon}
