"""Keep what the embedded Redis has acknowledged on disk, or hold its writers.

The server writes its append-only file before it replies, and `Disk` syncs the file. A slow or a
failing disk then concerns every program that writes to the server, so the server stops them.

Rules
- Sync once a second, and again at once after a slow sync.
- If the last completed sync began LATE_S ago, the server holds all writes (CLIENT PAUSE): at most
  2 s of acknowledged writes are not on disk. They continue when the sync completes.
- A sync during which all writes were held has everything on disk at its end, not only what was
  written before it: with a disk whose every sync is slow, writes continue in between.
- After REFUSE_S, and as soon as a sync fails, it refuses them: min-replicas-to-write is 1, and a
  server that listens on a Unix socket only has no replicas. Reads continue.
- A failed sync may have lost pages that no later sync writes. So the file is rewritten from memory
  before the server takes writes again.
- If the disk is full, the server has replied to writes that its file does not have yet. A reserve,
  a file of RESERVE_BYTES, then makes room for them, and writes are refused until it fits again.
- Whether writes are refused is a setting of the server: it outlives a `Disk` that ends.

With `appendfsync everysec` a server delays writes while an fsync is slow, up to 2 s, and replies
before it has written: acknowledged writes were lost with its process on a busy disk. With
`appendfsync no` it always writes before it replies, and Korvet calls fsync in its place.

A rewrite shortens the file and speeds up a restart. It takes one core from the writers, and a log
is hardly smaller after it. By default a server rewrites whenever the file has doubled: 1 GB
written at once would be written three times. So
- a file that has doubled is rewritten when the write rate is low;
- under constant load the server rewrites by itself, when the file has grown to eight times;
- below MIN_BYTES it is never rewritten: a restart replays that in about a second.
"""

import errno
import os
import shutil
from contextlib import suppress
from math import inf
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from korvet.base import logfmt
from korvet.base.synced_files import IDENT, SyncedFiles
from korvet.embedded_redis.socket import ask

SYNC_S = 1.0
"""Seconds from the begin of a sync to that of the next one."""
MIN_BYTES = 512 << 20
"""Smallest file worth a rewrite."""
GROWTH = 2
"""Growth since the last rewrite that makes the next one due."""
QUIET_KB_S = 1024.0
"""Write rate below which a rewrite may start."""


LATE_S = 1.8
"""Age of the last completed sync, in seconds, at which writes are held."""
REFUSE_S = 10.0
"""Age of the last completed sync, in seconds, at which writes are refused."""
WATCH_S = 0.1
"""Seconds between two checks of that age."""
HOLD_MS = 1000
"""Duration of one CLIENT PAUSE in ms: writes continue if this process ends."""
CHECK_S = 20.0
"""Seconds between two checks whether a rewrite is due."""

REWRITE_S = 5.0
"""Seconds between the begins of two rewrites after a failed sync."""

RESERVE_BYTES = 32 << 20
"""Size of the reserve; at most an eighth of a smaller disk."""

ACCEPT, HOLD, REFUSE = "accept", "hold", "refuse"
log = logfmt.get("disk")


class Disk:
    """The disk under the server of a data directory; call `run` in a thread."""

    def __init__(self, data_dir: Path, socket: Path) -> None:
        self._files = SyncedFiles(data_dir)
        self.reserve = data_dir / "reserve"
        self._socket = socket
        self._stopped = Event()
        self._state = ACCEPT
        self._synced_to = monotonic()
        self._held_since = inf
        """Time from which on writes are held or refused; inf if they are not."""
        self._held_to = -inf
        """Time to which they are."""
        self._failure = ""
        """Why the last sync failed; empty once the file is rewritten."""
        self._rewriting = False
        self._check_at = monotonic() + CHECK_S
        """Time of the next rewrite, or of the next check whether one is due."""

    def run(self) -> None:
        """Sync the file, and hold or refuse writes while that is late, until `stop`."""
        self.resume()
        Thread(target=self._sync_always, name="korvet-fsync", daemon=True).start()
        while not self._stopped.wait(WATCH_S):
            self.watch()

    def resume(self) -> None:
        """Take over the failure that an earlier Disk of this server found."""
        if b"\r\n1\r\n" in ask(self._socket, b"CONFIG GET min-replicas-to-write"):
            self._state, self._failure = REFUSE, "an earlier sync failed"
            self._check_at = monotonic()
        self._synced_to = monotonic()

    def stop(self) -> None:
        """End `run`. Threadsafe."""
        self._stopped.set()

    def _sync_always(self) -> None:
        began = monotonic()
        while not self._stopped.wait(max(0.0, began + SYNC_S - monotonic())):
            began = monotonic()
            self.sync(began)

    def sync(self, began: float) -> None:
        """Sync what was written before `began`, and note the result."""
        try:
            self._files.sync()
        except OSError as error:
            if not self._failure:
                log.error("AOF fsync failed", error=error.strerror)
            self._failure, self._rewriting = error.strerror or str(error), False
            self._check_at = began
        else:
            self._synced_to = monotonic() if self._held_since <= began else began

    def watch(self) -> None:
        """Hold, refuse or accept writes, as the age and the result of the last sync require."""
        age = monotonic() - self._synced_to
        if self._failure:
            self._refuse(self._failure)
            if age < LATE_S:
                self._rewrite()
        elif age >= REFUSE_S:
            self._refuse(f"a sync has taken {age:.0f} s")
        elif age >= LATE_S:
            self._hold(age)
        elif not self._has_room():
            self._refuse("the disk is full")
            # What the server has replied to and not written follows at once, and nothing else.
            self.reserve.unlink(missing_ok=True)
        else:
            self._accept()

    def _has_room(self) -> bool:
        """Return whether the server has written its file, and the reserve is there again."""
        if b"aof_last_write_status:err" in ask(self._socket, b"INFO persistence"):
            return False
        with suppress(OSError):  # e.g. a data directory that was moved away
            total, _, free = shutil.disk_usage(self.reserve.parent)
            size = min(RESERVE_BYTES, total // 8)
            if self.reserve.exists() and self.reserve.stat().st_size == size:
                return True
            return free >= size and self._allocate(size)
        return True

    def _allocate(self, size: int) -> bool:
        """Make the reserve; return False if the disk is full."""
        try:
            with self.reserve.open("wb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.write(bytes(size))
        except OSError as error:
            self.reserve.unlink(missing_ok=True)
            return error.errno not in (errno.ENOSPC, errno.EDQUOT)
        return True

    def _hold(self, age: float) -> None:
        if self._state == ACCEPT:
            log.warning("disk is slow, writes wait", unsynced_s=round(age, 1))
        if self._state != REFUSE:
            self._stop(HOLD, b"CLIENT PAUSE %d WRITE" % HOLD_MS, HOLD_MS / 1000)

    def _refuse(self, reason: str) -> None:
        if self._state != REFUSE:
            log.error("disk failed, writes refused", reason=reason)
        # Each time: a server that was restarted has the setting's default.
        self._stop(REFUSE, b"CONFIG SET min-replicas-to-write 1", inf)
        ask(self._socket, b"CLIENT UNPAUSE")

    def _accept(self) -> None:
        self._held_since, self._held_to = inf, -inf
        if self._state == REFUSE:
            log.info("disk is usable again, writes accepted")
            self._enter(ACCEPT, b"CONFIG SET min-replicas-to-write 0")
        elif self._state == HOLD:
            self._enter(ACCEPT, b"CLIENT UNPAUSE")
        elif monotonic() >= self._check_at:
            self._check_at = monotonic() + CHECK_S
            rewrite_if_due(self._socket)

    def _stop(self, state: str, command: bytes, duration_s: float) -> None:
        """Hold or refuse writes for a duration from now on, if the server takes the command."""
        began = monotonic()
        if self._enter(state, command):
            if began > self._held_to:
                self._held_since = monotonic()
            self._held_to = began + duration_s

    def _enter(self, state: str, command: bytes) -> bool:
        """Send the command; the state is entered if the server takes it."""
        is_taken = ask(self._socket, command).startswith(b"+")
        if is_taken:
            self._state = state
        return is_taken

    def _rewrite(self) -> None:
        """Rewrite the file from memory, and forget the failure once that is done."""
        info = parsed(ask(self._socket, b"INFO persistence"))
        if info.get(b"aof_rewrite_in_progress") != b"0" or info[b"aof_rewrite_scheduled"] != b"0":
            return
        if self._rewriting and info[b"aof_last_bgrewrite_status"] == b"ok":
            self._failure, self._rewriting = "", False
        elif monotonic() >= self._check_at:
            self._check_at = monotonic() + REWRITE_S
            self._rewriting = ask(self._socket, b"BGREWRITEAOF").startswith(b"+")


AOF_SETTINGS = (
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
