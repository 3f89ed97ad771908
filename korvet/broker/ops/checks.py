"""Check a Redis that holds a log: the server, its users' rights, and the topics of a namespace.

CHECKS is the list of all checks: `korvet doctor` and the console's overview run it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from korvet.base.human import size
from korvet.base.synced_files import IDENT
from korvet.broker.ops import topic_checks
from korvet.broker.ops.finding import Finding
from korvet.broker.ops.topic_checks import Checked
from korvet.config.durability import Durability
from korvet.config.topic_policy import TopicConfigs
from korvet.remote_log.memory import REFUSE_MARK, SLOW_MARK, above_share
from korvet.scripts import lock
from korvet.scripts.keys import Keys
from korvet.store import redis_user
from korvet.store.errors import CommandFailed, advice_for
from korvet.store.handshake import describe_server, parse_info, why_writes_are_refused
from korvet.store.sync_store import SyncStore

BUDGET = "local.memory.bytes"
_SYNCING = {
    "always": ("ok", "appendfsync is always: nothing is lost, and every write waits"),
    "everysec": (
        "note",
        "appendfsync is everysec: a power failure loses about a second, and a Redis that is killed "
        "while the disk is busy up to two",
    ),
    "no": ("note", "appendfsync is no: a power failure loses what the kernel had not written"),
}
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


def examine(store: SyncStore, namespace: str = "korvet") -> Iterator[Finding]:
    """Run all checks. Raises StoreError."""
    checked = Checked(store, Keys(namespace), parse_info(store.command("INFO")))
    for check in CHECKS:
        yield from check(checked)


def _server(checked: Checked) -> Iterator[Finding]:
    info = checked.info
    server = describe_server(info)
    name, version = server.name, server.version
    mode = info.get("redis_mode", "standalone")
    oldest = (7, 2) if name == "Valkey" else (6, 2)
    found = f"{name} {version}, {mode}, up {info.get('uptime_in_seconds', '?')} s"
    if _numbers(version) < oldest:
        yield Finding("bad", "server", f"{found}: too old, Korvet needs Redis 6.2 or Valkey 7.2")
    else:
        yield Finding("ok", "server", found)
    found_flaw = vulnerable(name, version)
    if found_flaw is not None:
        yield Finding("note", "advisory", found_flaw)
    role = info.get("role", "master")
    if role != "master":
        yield Finding("bad", "role", f"this server is a {role}: brokers need the master")
    else:
        yield Finding("ok", "role", f"master with {info.get('connected_slaves', '0')} replicas")


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


def losses(info: Mapping[str, str]) -> Iterator[Finding]:
    """Check by a server's INFO whether it can lose records."""
    if info.get("loading") == "1":
        yield Finding("bad", "persistence", "Redis is still loading its data")
    if info.get("aof_enabled") != "1":
        yield Finding(
            "bad",
            "persistence",
            "the append-only file is off: a crash loses the writes after the last snapshot "
            "(CONFIG SET appendonly yes, or `korvet doctor --fix`)",
        )
    else:
        yield Finding("ok", "persistence", "the append-only file is on")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield Finding(
            "bad",
            "eviction",
            f"maxmemory-policy is {policy}: Redis WILL DELETE RECORDS when memory runs short "
            "(CONFIG SET maxmemory-policy noeviction, or `korvet doctor --fix`)",
        )
    else:
        yield Finding("ok", "eviction", "maxmemory-policy is noeviction")
    delayed = int(info.get("aof_delayed_fsync", 0))
    if delayed:
        yield Finding(
            "note",
            "disk",
            f"appendfsync everysec, and {delayed} times a sync was so slow that writes waited: a "
            "Redis that is killed then loses up to two seconds (CONFIG RESETSTAT counts anew)",
        )
    if reason := why_writes_are_refused(info):
        yield Finding("bad", "writes", f"Redis refuses writes: {reason}")
    if info.get("aof_last_bgrewrite_status", "ok") != "ok":
        yield Finding("bad", "rewrite", "the last rewrite of the append-only file failed: no room?")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield Finding("bad", "snapshots", "the last snapshot failed: not enough disk or memory?")


def unkept(
    topics: Iterable[tuple[str, Durability | None]],
    info: Mapping[str, str],
    appendfsync: str,
    is_embedded: bool,
) -> Iterator[Finding]:
    """Yield what acks=-1 of these topics waits for, if the server cannot keep it."""
    names: dict[Durability, list[str]] = {}
    for name, promised in topics:
        if promised is not None:
            names.setdefault(promised, []).append(name)
    for promised, some in names.items():
        if reason := promised.why_not_kept(info, appendfsync, is_embedded):
            sentence = f"acks=-1 of {_some(some)} waits for {promised}, which Redis cannot keep: "
            yield Finding("bad", "durability", sentence + reason)


def _durability(checked: Checked) -> Iterator[Finding]:
    """Yield the topics whose acks=-1 waits for more than the server can keep.

    Settings and patterns in the brokers' files are not known here.
    """
    configs = TopicConfigs(checked.settings)
    topics = [
        (name, configs.policy(name, each.configs).acks_all)
        for name, each in sorted(checked.topics.items())
    ]
    try:
        syncing = _setting(checked.store, "appendfsync"), _is_embedded(checked.store)
    except CommandFailed:
        syncing = "", False
    found = list(unkept(topics, checked.info, *syncing))
    if not found and any(promised for _, promised in topics):
        found = [Finding("ok", "durability", "Redis can keep what acks=-1 of each topic waits for")]
    yield from found


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many there are."""
    more = f" and {len(names) - 5} other topics" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _syncing(checked: Checked) -> Iterator[Finding]:
    """Check what a power failure loses, if there is an AOF and CONFIG GET is permitted."""
    store = checked.store
    if checked.info.get("aof_enabled") != "1":
        return
    try:
        policy = _setting(store, "appendfsync")
        ours = _is_embedded(store)
    except CommandFailed:
        return
    if ours and policy == "no":
        yield Finding("ok", "disk", "its broker syncs the file: at most 2 s are not on disk")
    elif policy in _SYNCING:
        grade, sentence = _SYNCING[policy]
        yield Finding(grade, "disk", sentence)


def _is_embedded(store: SyncStore) -> bool:
    """Return whether a broker started this Redis, which nothing but its socket reaches."""
    try:
        return _setting(store, "syslog-ident") == IDENT
    except CommandFailed:
        return False


def _setting(store: SyncStore, name: str) -> str:
    found = store.command("CONFIG", "GET", name)
    return found[1].decode() if found else ""


def _memory(checked: Checked) -> Iterator[Finding]:
    info = checked.info
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    total = int(info.get("total_system_memory", 0))
    room = max((limit or total) - used, 0)
    found = f"{size(used)} used, {size(room)} free of {size(limit or total)}"
    if not limit and not total:
        yield Finding("note", "memory", f"{size(used)} used; this Redis reports no limit")
    elif limit and not room:
        advice = "lower retention.ms, delete records or raise maxmemory"
        yield Finding("bad", "memory", f"{found}: Redis refuses new records; {advice}")
    elif room < (limit or total) // 10:
        yield Finding("bad", "memory", f"{found}: less than a tenth is free")
    else:
        yield Finding("ok", "memory", found if limit else f"{found} (maxmemory is not set)")


def _budget(checked: Checked) -> Iterator[Finding]:
    """Compare the used memory with the budget of the brokers, if they have one."""
    budget, used = checked.settings.integer(BUDGET), int(checked.info.get("used_memory", 0))
    if budget < 0:
        return
    found = f"{size(used)} used of {BUDGET} {size(budget)}"
    if used >= budget:
        sizes = topic_checks.sizes(checked)
        refused = above_share(sizes, used, budget, 1.0)
        which = f": {', '.join(sorted(refused, key=lambda name: -sizes[name])[:5])}"
        more = (
            ", and tiered ones, which are not copied in time,"
            if used > REFUSE_MARK * budget
            else ""
        )
        yield Finding(
            "bad",
            "budget",
            f"{found}: topics that are not tiered refuse records{more} if they hold more than "
            f"their share{which if refused else ''} (raise the budget, tier or shorten these "
            "topics)",
        )
    elif used > SLOW_MARK * budget:
        yield Finding("note", "budget", f"{found}: producers are throttled")
    else:
        yield Finding("ok", "budget", found)


def _lua(checked: Checked) -> Iterator[Finding]:
    try:
        checked.store.command("EVAL", "return 1", 0)
    except CommandFailed as error:
        yield Finding("bad", "lua", advice_for(error))
    else:
        yield Finding("ok", "lua", "scripts run")


def _user(checked: Checked) -> Iterator[Finding]:
    """Compare the rights of the user with those that a broker needs."""
    store = checked.store
    try:
        user = bytes(store.command("ACL", "WHOAMI")).decode()
        missing = _refused(store, user, redis_user.needed(checked.keys.namespace))
        extra = redis_user.too_much()
        permitted = extra.keys() - _refused(store, user, extra)
    except CommandFailed:
        yield Finding("note", "user", "its rights cannot be read: that needs +acl|dryrun")
        return
    if missing:
        yield Finding(
            "bad",
            "user",
            f"user {user} may not call {', '.join(sorted(missing))}: `korvet redis-acl` prints "
            "the rule that a broker needs",
        )
    if permitted and not missing and _is_embedded(store):
        yield Finding("ok", "user", "only the user of this machine who owns the socket has access")
    elif permitted:
        yield Finding(
            "note",
            "user",
            f"user {user} may do more than a broker needs ({', '.join(sorted(permitted))}): "
            "`korvet redis-acl --apply` creates a user with the least privileges",
        )
    if not missing and not permitted:
        yield Finding("ok", "user", f"user {user} has the rights that a broker needs")


def _refused(store: SyncStore, user: str, calls: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Return the commands that the user may not call.

    A command that the server does not have counts as permitted.
    """
    refused = set()
    for name, call in calls.items():
        try:
            reply = store.command("ACL", "DRYRUN", user, *call)
        except CommandFailed as error:
            if "not found" in str(error):
                continue
            raise
        if bytes(reply) != b"OK":
            refused.add(name)
    return refused


def _scripts(checked: Checked) -> Iterator[Finding]:
    known = lock.shipped()
    there = checked.store.command("SCRIPT", "EXISTS", *known.values())
    count = sum(map(int, there))
    hint = "; brokers load the others at first use" if count < len(known) else ""
    yield Finding("ok", "scripts", f"{count} of {len(known)} loaded{hint}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


CHECKS: tuple[Callable[[Checked], Iterator[Finding]], ...] = (
    _server,
    lambda checked: losses(checked.info),
    _syncing,
    _durability,
    _memory,
    _budget,
    _lua,
    _scripts,
    _user,
    topic_checks.offsets,
    topic_checks.lost,
    topic_checks.unread,
    topic_checks.unconsumed,
    topic_checks.unfinished,
)
