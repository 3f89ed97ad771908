"""`korvet doctor`: check whether a Redis is fit to hold a log."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.embedded_redis import aof
from korvet.store.errors import CommandFailed

if TYPE_CHECKING:
    from korvet.store.sync_store import SyncStore

_MARKS = {"ok": "ok", "note": "note", "bad": "WARNING"}

_SYNCING = {
    "always": ("ok", "appendfsync is always: nothing is lost, and every write waits"),
    "everysec": (
        "note",
        "appendfsync is everysec: a power failure loses about a second, and a Redis that is killed "
        "while the disk is busy up to two (documentation, page Durability)",
    ),
    "no": ("note", "appendfsync is no: a power failure loses what the kernel had not written"),
}


class Finding(NamedTuple):
    """A checked property. `bad` can lose records or stop the broker; `note` is information."""

    grade: str
    subject: str
    sentence: str


def doctor(target: o.Target, json: o.Json = False) -> None:
    """Check the Redis a broker would use.

    Exit code 1 if records could be lost.
    """
    from korvet.cli.redis_target import store

    with store(target) as reached:
        findings = list(examine(reached))
    if json:
        table_output.document(table_output.objects(("grade", "subject", "finding"), findings))
    else:
        rows = [(_MARKS[grade], subject, sentence) for grade, subject, sentence in findings]
        table_output.table(("", "subject", "finding"), rows)
    if any(finding.grade == "bad" for finding in findings):
        raise typer.Exit(1)


def examine(store: "SyncStore") -> Iterator[Finding]:
    """Check the server, its persistence, its memory and its script cache."""
    info = parse_info(bytes(store.command("INFO")).decode("utf-8", "replace"))
    yield from _server(info)
    yield from _persistence(info)
    yield from _syncing(store, info)
    yield from _memory(info)
    yield _scripts(store)


def parse_info(text: str) -> dict[str, str]:
    """Return the fields of an INFO reply by name."""
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value.strip() for name, colon, value in pairs if colon}


def _server(info: Mapping[str, str]) -> Iterator[Finding]:
    name, version = "Redis", info.get("redis_version", "0")
    if info.get("server_name") == "valkey" or "valkey_version" in info:
        name, version = "Valkey", info.get("valkey_version", version)
    mode = info.get("redis_mode", "standalone")
    oldest = (7, 2) if name == "Valkey" else (6, 2)
    found = f"{name} {version}, {mode}, up {info.get('uptime_in_seconds', '?')} s"
    if _numbers(version) < oldest:
        yield Finding("bad", "server", f"{found}: too old, Korvet needs Redis 6.2 or Valkey 7.2")
    else:
        yield Finding("ok", "server", found)
    role = info.get("role", "master")
    if role != "master":
        yield Finding("bad", "role", f"this server is a {role}: brokers need the master")
    else:
        yield Finding("ok", "role", f"master with {info.get('connected_slaves', '0')} replicas")


def _persistence(info: Mapping[str, str]) -> Iterator[Finding]:
    if info.get("loading") == "1":
        yield Finding("bad", "persistence", "Redis is still loading its data")
    if info.get("aof_enabled") != "1":
        yield Finding(
            "bad",
            "persistence",
            "the append-only file is off: a crash loses the writes after the last snapshot "
            "(CONFIG SET appendonly yes)",
        )
    elif info.get("aof_last_write_status", "ok") != "ok":
        yield Finding(
            "bad", "persistence", "the last write of the append-only file failed: disk full?"
        )
    else:
        yield Finding("ok", "persistence", "the append-only file is on")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield Finding("bad", "snapshots", "the last snapshot failed: not enough disk or memory?")


def _syncing(store: "SyncStore", info: Mapping[str, str]) -> Iterator[Finding]:
    """Check what a power failure loses, if there is an AOF and CONFIG GET is permitted."""
    if info.get("aof_enabled") != "1":
        return
    try:
        policy = _setting(store, "appendfsync")
        ours = _setting(store, "syslog-ident") == aof.IDENT
    except CommandFailed:
        return
    if ours and policy == "no":
        yield Finding("ok", "disk", "its broker syncs the file once a second")
    elif policy in _SYNCING:
        grade, sentence = _SYNCING[policy]
        yield Finding(grade, "disk", sentence)


def _setting(store: "SyncStore", name: str) -> str:
    found = store.command("CONFIG", "GET", name)
    return found[1].decode() if found else ""


def _memory(info: Mapping[str, str]) -> Iterator[Finding]:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield Finding(
            "bad",
            "eviction",
            f"maxmemory-policy is {policy}: Redis WILL DELETE RECORDS when memory runs short "
            "(CONFIG SET maxmemory-policy noeviction)",
        )
    else:
        yield Finding("ok", "eviction", "maxmemory-policy is noeviction")
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    total = int(info.get("total_system_memory", 0))
    room = (limit or total) - used
    found = f"{_size(used)} used, {_size(room)} free of {_size(limit or total)}"
    if not limit and not total:
        yield Finding("note", "memory", f"{_size(used)} used; this Redis reports no limit")
    elif room < (limit or total) // 10:
        yield Finding("bad", "memory", f"{found}: less than a tenth is free")
    else:
        yield Finding("ok", "memory", found if limit else f"{found} (maxmemory is not set)")


def _scripts(store: "SyncStore") -> Finding:
    from korvet.scripts import bundle

    bundles = [bundle.load(name) for name in bundle.names()]
    there = store.command("SCRIPT", "EXISTS", *(each.sha1 for each in bundles))
    count = sum(map(int, there))
    found = f"{count} of {len(bundles)} loaded"
    if count < len(bundles):
        return Finding("note", "scripts", f"{found}; brokers load the others at first use")
    return Finding("ok", "scripts", found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
