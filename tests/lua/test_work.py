"""Check the work of each script at its limits: a script that works for long blocks Redis.

The work is counted, not timed: commands, values, bytes and Lua instructions, each with the time
that a server of 2020 takes for it. A new script is entered in one of the tables.
"""

import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from korvet.broker.background import scheduled_delivery
from korvet.groups.coordinator import ROWS_PER_CALL
from korvet.groups.modern import pack
from korvet.log.append_batcher import ARGUMENT_BYTES, MAX_BATCHES, MAX_CALL_BYTES
from korvet.log.append_parts import PART_ARGUMENTS, PART_BYTES, PART_RECORDS, parts_of
from korvet.log.cleaner import TAIL_ENTRIES
from korvet.log.compacted_copy import INDEX_BYTES, MAX_ROWS
from korvet.log.tables import AT_MOST
from korvet.scripts import append_call, bundle
from korvet.scripts.append_call import Row, batch_of
from korvet.scripts.call import Call, Reply
from korvet.scripts.calls.group import CommitReply
from korvet.scripts.keys import Keys
from korvet.testing import LuaRunner
from korvet.topics.lifecycle import AT_ONCE, GROUPS_AT_ONCE
from korvet.transactions.coordinator import MEMBERS_PER_CALL
from korvet.wire import record_entries
from korvet.wire.records import Record
from tests.lua.groups import Group
from tests.lua.partition import ID, Part
from tests.lua.streams import Group as StreamsGroup
from tests.lua.streams import subtopology, topology
from tests.lua.test_group_consumer_heartbeat import Group as ConsumerGroup
from tests.lua.test_group_share_heartbeat import Group as ShareGroup
from tests.lua.worst_share import RUNS, STEP, held

R = TypeVar("R", bound=Reply)
KEYS = Keys()
LIMIT_US = 50_000
COMMAND_US, VALUE_US, BYTE_US, INSTRUCTION_US = 1.5, 0.15, 0.0025, 0.02
MEMBERS, TOPICS, PARTITIONS, LIST = 1000, 1000, 3000, 2000
"""The defaults of group.consumer.max.size, group.subscription.max.* and group.max.size."""
SUBSCRIPTION_BYTES = 524_288
"""The default of group.subscription.max.bytes."""
PART = 10
"""Classic groups are tested with a tenth of the members: their work is proportional."""
NAMES = [f"{n:04}{'n' * 100}" for n in range(TOPICS)]


def cost_us(lua: LuaRunner) -> float:
    work = lua.work
    return (
        work.commands * COMMAND_US
        + work.values * VALUE_US
        + work.bytes * BYTE_US
        + work.instructions * INSTRUCTION_US
    )


class Meter(LuaRunner):
    """A runner that keeps the cost of the dearest run of one script."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.worst = 0.0

    def run(self, call: Call[R]) -> R:
        reply = super().run(call)
        if call.script.name == self.name:
            self.worst = max(self.worst, cost_us(self))
        return reply


def consumers(lua: LuaRunner) -> None:
    group = ConsumerGroup(lua)
    each = PARTITIONS // TOPICS
    group.topics = {name: (f"{n:032x}", each) for n, name in enumerate(NAMES)}
    reply = group.beat("m1", 0, names=pack(NAMES), max_topics=TOPICS)
    assert not reply.error and reply.assignment
    group.version += 1
    group.beat("m1", reply.epoch)
    assert group.beat("m2", 0, names=pack([*NAMES, "more"]), max_topics=TOPICS).error == 81


def crowd(lua: LuaRunner, assignor: str = "range") -> None:
    """Assign all partitions to the most members, whose subscriptions differ."""
    group, keys = ConsumerGroup(lua), KEYS.group("g")
    group.topics = {name: (f"{n:032x}", PARTITIONS // TOPICS) for n, name in enumerate(NAMES)}

    def join(member: str, *names: str) -> None:
        reply = group.beat(
            member, 0, names=pack(names), assignor=assignor, max_topics=TOPICS, max_size=MEMBERS
        )
        assert not reply.error

    join("m0", *NAMES)
    join("m1", *NAMES[:3])
    # The others have rows like that one: to let each join takes long.
    row: Any = lua.command("HGET", keys.consumer_members, "m1")
    for n in range(2, MEMBERS - 1):
        own = row.replace(NAMES[2].encode(), NAMES[n].encode())
        lua.command("HSET", keys.consumer_members, f"m{n}", own)
    lua.command("HSET", keys.group, "size", MEMBERS - 1)
    lua.advance(2000)
    join(f"m{MEMBERS - 1}", *NAMES[:2], NAMES[-1])
    described = lua.run(keys.modern_describe(type="consumer"))
    assert described.assignment_epoch == described.epoch
    assert len(set(described.members[::14])) == MEMBERS


def many_short_names(lua: LuaRunner) -> None:
    """Let members join with short names, each without another hundred topics, until refused."""
    group, names = ConsumerGroup(lua), [f"t{n}" for n in range(TOPICS)]
    group.topics = {name: (f"{n:032x}", PARTITIONS // TOPICS) for n, name in enumerate(names)}
    for n in range(MEMBERS):
        own = [name for name in names if hash_of(name, n) % 10]
        reply = group.beat(
            f"m{n}", 0, names=pack(own), max_topics=TOPICS, max_bytes=SUBSCRIPTION_BYTES
        )
        lua.advance(1100)
        if reply.error:
            break
    assert reply.error == 81


def hash_of(name: str, n: int) -> int:
    return zlib.crc32(f"{name} {n}".encode())


def many_consumers(lua: LuaRunner) -> None:
    consumers(lua)
    lua.command("FLUSHALL")
    many_short_names(lua)
    for assignor in ("range", "uniform"):
        lua.command("FLUSHALL")
        crowd(lua, assignor)


def sharers(lua: LuaRunner) -> None:
    group = ShareGroup(lua, t=PARTITIONS)
    reply = group.beat("m1", 0, [*NAMES[1:], "t"], max_topics=TOPICS)
    assert not reply.error and reply.assignment
    assert group.beat("m2", 0, NAMES, max_topics=TOPICS).error == 81


def stream(lua: LuaRunner) -> None:
    """Assign all tasks of the largest topology to two members, then describe the group."""
    tasks = topology(*(subtopology(str(n), [name]) for n, name in enumerate(NAMES)))
    group = StreamsGroup(lua, tasks, **dict.fromkeys(NAMES, PARTITIONS // TOPICS))
    group.beat("m1", 0, max_bytes=SUBSCRIPTION_BYTES)
    lua.advance(1000)
    group.beat("m2", 0, max_bytes=SUBSCRIPTION_BYTES)
    assert group.describe().assignment_epoch == 3


def describe_modern(lua: LuaRunner) -> None:
    crowd(lua)
    lua.command("FLUSHALL")
    stream(lua)


def list_share_topics(lua: LuaRunner) -> None:
    lua.command("HSET", KEYS.group("g").group, "type", "share", "state", "Empty")
    for n in range(10):
        flat = [word for name in NAMES for word in (f"{n}{name}", ID)]
        lua.command("HSET", KEYS.group("g").share_topics, *flat)
    assert len(lua.run(KEYS.group("g").list_share_topics()).topics) == 20 * TOPICS


def natives(lua: LuaRunner) -> None:
    Part(lua).create()
    for _ in range(3000):
        lua.command("XADD", KEYS.partition("t", 0).stream, "*", "value", b"v" * 10_000)


def lag(lua: LuaRunner) -> None:
    natives(lua)
    lua.run(KEYS.partition("t", 0, ID).lag(offset=0))


def skip(lua: LuaRunner) -> None:
    natives(lua)
    lua.run(KEYS.partition("t", 0, ID).skip_records(offset=0, records=10**6, end=2**52))


def classic(lua: LuaRunner) -> Group:
    """Return a group whose members have joined."""
    group = Group(lua, delay_ms=3000)
    for _ in range(LIST // PART):
        group.join(max_size=LIST)
    while group.poll_join("m1").waiting:
        lua.advance(3001)
        group.tick()
    return group


def sync(lua: LuaRunner) -> None:
    group = classic(lua)
    group.sync("m1", 1, tuple((f"m{n}", b"a" * 100) for n in range(LIST // PART)))


def leave(lua: LuaRunner) -> None:
    group = classic(lua)
    call = KEYS.group(group.name).leave(
        [(f"m{n}", "") for n in range(1, ROWS_PER_CALL // PART + 1)]
    )
    assert set(lua.run(call).results) == {0}


def describe(lua: LuaRunner) -> None:
    lua.run(KEYS.group(classic(lua).name).describe(full=2))


def poll(lua: LuaRunner) -> None:
    assert len(classic(lua).poll_join("m1").members) == 3 * (LIST // PART)


def expire(lua: LuaRunner) -> None:
    group = classic(lua)
    lua.advance(20_000)
    group.tick(present_ms=10**9)


def commit_rows() -> list[tuple[str, int, int, int, str, str]]:
    return [("t", n, 1, -1, ID, "m" * 4096) for n in range(ROWS_PER_CALL)]


def commit(lua: LuaRunner) -> None:
    call = KEYS.group("g").commit(
        KEYS.commit_rows(commit_rows()),
        member="",
        instance="",
        generation=-1,
        allow_member_epoch=1,
        is_registered=1,
        retention_ms=-1,
    )
    lua.run(call)


def commit_owned(lua: LuaRunner) -> None:
    group = KEYS.group("g")
    commit(lua)  # what is replaced has metadata as well
    lua.command("HSET", group.consumer_members, "m", "2 1 1 45000 45000 0 ")
    owned = [word for n in range(ROWS_PER_CALL) for word in (f"{ID}:{n}", "1 m")]
    lua.command("HSET", group.partition_owners, *owned)
    cells = [(f"korvet:t:{n}", "1", 2, ID, "m" * 4096) for n in range(ROWS_PER_CALL)]
    assert lua.run(group.commit_owned(cells, member="m", epoch=1)).error == 0


def pending_commits(producer_id: int) -> Call[CommitReply]:
    return KEYS.group("g").txn_commit(
        KEYS.commit_rows(commit_rows()),
        member="",
        instance="",
        generation=-1,
        is_registered=1,
        producer_id=producer_id,
        producer_epoch=0,
        transaction=1,
    )


def txn_commit(lua: LuaRunner) -> None:
    lua.run(pending_commits(1))


def txn_complete(lua: LuaRunner) -> None:
    txn_commit(lua)
    lua.advance(1)
    # The offsets that it replaces have metadata as well.
    commit(lua)
    lua.run(pending_commits(2))
    call = KEYS.group("g").txn_complete(producer_id=2, producer_epoch=0, transaction=1, committed=1)
    assert len(lua.run(call).committed) == 2 * ROWS_PER_CALL


def add_members(lua: LuaRunner) -> None:
    lua.run(KEYS.transaction("x").init(timeout_ms=1, producer_id=-1, producer_epoch=-1, fresh_id=7))
    names = [f"p:{'t' * 200}:{n}" for n in range(MEMBERS_PER_CALL)]
    call = KEYS.transaction("x").add_partitions(producer_id=7, producer_epoch=0, members=names)
    assert not lua.run(call).error


def wide(count: int, headers: int = 0, size: int = 100) -> list[Record]:
    named = [(f"h{n}", b"x" * 20) for n in range(headers)]
    return [(n, 1000, b"k%d" % n, b"v" * size, named) for n in range(count)]


def append(lua: LuaRunner) -> None:
    part = Part(lua, "record", "time").create()
    for found in (
        wide(PART_RECORDS + 1),
        wide(PART_ARGUMENTS // 20, headers=7),
        wide(20, headers=1000),
        wide(2, size=PART_BYTES),
    ):
        call = part.call(len(found), fields=record_entries.fields_of(found))
        for each in parts_of(call):
            assert not lua.run(each).error
    kept = Part(lua, "record", "time", topic="kept", table=2).create()
    for found in (wide(PART_RECORDS), wide(1, size=PART_BYTES), wide(PART_ARGUMENTS // 20, 7)):
        for _ in range(2):
            for each in parts_of(kept.call(len(found), fields=record_entries.fields_of(found))):
                assert not lua.run(each).error
            lua.command("HSET", kept.keys.log, "table", 0)
    known = Part(lua, "record", "time", topic="once", dedupe="60000:10").create()
    named = [
        (*record[:4], [("korvet-dedupe-id", b"%0128d" % record[0])])
        for record in wide(PART_RECORDS)
    ]
    call = known.call(PART_RECORDS, fields=record_entries.fields_of(named))
    assert [lua.run(call).stored for _ in range(2)] == [1, 0]
    named = [(*record[:4], [("korvet-expected-offset", b"-1")]) for record in wide(PART_RECORDS)]
    expecting = Part(lua, "record", "time", topic="expecting", table=2).create()
    call = expecting.call(PART_RECORDS, fields=record_entries.fields_of(named))
    assert [lua.run(call).stored for _ in range(2)] == [1, 0]


def fill_table(lua: LuaRunner) -> None:
    """Fill a table whose newest keys are noted, from many entries, and from large ones."""
    for topic, count, size in (("many", AT_MOST, 100), ("large", 40, 1 << 17)):
        part = Part(lua, "record", "time", topic=topic).create()
        for _ in range(2):
            call = part.call(count, fields=record_entries.fields_of(wide(count, size=size)))
            for each in parts_of(call):
                assert not lua.run(each).error
            assert lua.run(part.keys.set_table(action="offsets")).behind
        call = part.call(AT_MOST, fields=record_entries.fields_of(wide(AT_MOST, size=0)))
        assert lua.run(call).stored
        more = 1
        while more:
            more = lua.run(part.keys.fill_table((), at_most=AT_MOST)).more


def append_many(lua: LuaRunner) -> None:
    part = Part(lua, "record", "time").create()
    each = record_entries.fields_of(wide(1, size=1))
    batch = batch_of(part.call(1, fields=each))
    values = MAX_CALL_BYTES // (ARGUMENT_BYTES + 1) - MAX_BATCHES * len(batch)
    large = batch_of(part.call(values // 3, fields=record_entries.fields_of(wide(values // 3))))
    assert len(large) > 1000
    batches = [batch] * (MAX_BATCHES - 1) + [large]
    reply = lua.run(append_call.append_many(KEYS, [("t", 0, ID, 0, batches)]))
    assert {answer.stored for answer in reply.answers} == {1}


def schedule_add(lua: LuaRunner) -> None:
    """Store as many rows, and as many ordinary records, as a part may have."""
    Part(lua, "record", "time").create()

    def send(rows: list[Row], ordinary: int = 0) -> None:
        fields = record_entries.fields_of(wide(ordinary)) if ordinary else []
        rest = [*(word for row in rows for word in row), *fields]
        call = KEYS.partition("t", 0, ID).schedule_add(
            count=len(rows) + ordinary,
            size=0,
            max_count=10**6,
            max_bytes=10**9,
            channel="c",
            ordinary=ordinary,
            rows=len(rows),
            rest=rest,
        )
        for each in parts_of(call):
            assert not lua.run(each).error

    for _ in range(2):
        send([Row("in", n, b"id %d" % n, 1, 10, 5, b"x" * 100) for n in range(PART_RECORDS)])
    send([Row("at", n, b"", 1, 10, 5, b"x" * (PART_BYTES // 2)) for n in range(2)])
    send([], PART_RECORDS)


def append_due(lua: LuaRunner) -> None:
    Part(lua, "record", "time").create()
    most, size = scheduled_delivery.MAX_ROWS, scheduled_delivery.MAX_BYTES
    fields = [word for n in range(most) for word in (b"2", b"value", b"%d" % n)]
    payload = b"".join(b"%d:%s" % (len(word), word) for word in fields)
    one = [Row("at", 1, b"", most, 10, 5, payload)]
    large = b"7:value.z" * (size // 9)
    for rows in (
        one,
        [Row("at", n, b"id %d" % n, 1, 10, 5, b"1:25:value1:x") for n in range(2 * most)],
        [Row("at", n, b"", 1, 10, 5, b"1:25:value%d:%s" % (len(large), large)) for n in range(2)],
    ):
        rest = [word for row in rows for word in row]
        call = KEYS.partition("t", 0, ID).schedule_add(
            count=0, max_count=10**6, max_bytes=10**9, channel="c", rows=len(rows), rest=rest
        )
        assert not lua.run(call).error
        wait_ms = 0
        while wait_ms == 0:
            due = KEYS.partition("t", 0, ID).schedule_append_due(max_rows=most, max_bytes=size)
            wait_ms = lua.run(due).wait_ms


def clean_commit(lua: LuaRunner) -> None:
    """Copy a step of the entries above the limit, then replace a log with a long index."""
    part = Part(lua, "record", "dense").create()
    for _ in range(MAX_ROWS // 10):
        assert not part.append(10, size=10 * INDEX_BYTES).error
    part.append(TAIL_ENTRIES + 1)
    old = [word for n in range(MAX_ROWS) for word in (n, f"{n}:{10**12}:{n * 2**16}:{n}")]
    lua.command("ZADD", part.keys.index, *old)
    for n in range(GROUPS_AT_ONCE):
        lua.command("XGROUP", "CREATE", part.keys.stream, f"group {n}", "$")
    begin = part.keys.clean_begin(token="me", lag_ms=0, tombstone_ms=0, dirty=0)
    assert lua.run(begin).due
    lua.command("HSET", part.keys.log, "entries", 10**6, "bytes", 10**6)
    length = 0
    for left in (1, 0):
        call = part.keys.clean_commit(
            token="me", length=length, start=0, limit=MAX_ROWS,
            cleaned=MAX_ROWS, cleaned_bytes=0, start_bytes=0, start_records=0, tombstones=0,
            tombstone_ms=0, at_most=TAIL_ENTRIES,
            rows=[f"{n}:{10**12 + n}:{n * 2**16}:{n}" for n in range(MAX_ROWS)],
        )  # fmt: skip
        reply = lua.run(call)
        assert (reply.error, reply.more) == (0, left)
        length = reply.length


WORST: dict[str, Callable[[LuaRunner], object]] = {
    "group.commit": commit,
    "group.commit_owned": commit_owned,
    "group.consumer_heartbeat": many_consumers,
    "group.describe": describe,
    "group.join": classic,
    "group.leave": leave,
    "group.list_share_topics": list_share_topics,
    "group.modern_describe": describe_modern,
    "group.poll_join": poll,
    "group.share_heartbeat": sharers,
    "group.streams_heartbeat": stream,
    "group.sync": sync,
    "group.tick": expire,
    "group.txn_commit": txn_commit,
    "group.txn_complete": txn_complete,
    "log.append": append,
    "log.append_many": append_many,
    "log.fill_table": fill_table,
    "log.clean_commit": clean_commit,
    "log.lag": lag,
    "log.skip_records": skip,
    "schedule.add": schedule_add,
    "schedule.append_due": append_due,
    "transaction.add_partitions": add_members,
    **{name: run for name, (run, _) in RUNS.items()},
}
"""Runs that make a script do the most that the limits allow."""
CLASSIC = (classic, describe, expire, leave, poll, sync)

ARGUMENTS: dict[str, tuple[int, int]] = {
    "acl.create": (1, 2000),
    "acl.delete": (1, 2000),
    "group.delete_offsets": (8, 2 + ROWS_PER_CALL),
    "group.heartbeat": (4 * 64, 4 * 2000),
    "group.share_alter_topics": (5, 2 * TOPICS),
    "topic.add_partitions": (3 + 14 * AT_ONCE, 10),
    "topic.create": (3 + 14 * AT_ONCE, 10),
    "topic.delete": (3 + 17 * AT_ONCE + GROUPS_AT_ONCE, 6 + AT_ONCE),
    "user.alter": (1, 2 + 3 * 2),
}
"""The most KEYS and ARGV that callers give: the header's COST says what the script then calls."""

BY_STEPS = {
    "broker.claim_id": "a row per broker",
    "broker.raise_epoch": "200 run ids and 1,000 processes",
    "broker.register": "a row per broker",
    "group.claim_due": "CLAIM_LIMIT of the coordinator",
    "group.delete_topic_offsets": "the partitions of a topic: 10,000 HDEL fields",
    "group.record_lag": "an hour's and a day's samples",
    "log.adopt": "4,000 entries or 8 MB",
    "log.drop_unnumbered": "1,000 entries or 8 MB",
    "log.apply_retention": "index steps, an argument",
    "log.delete_records": "index steps, an argument",
    "log.expire_producers": "a page of 1,000 producers",
    "log.group_destroy": "1,000 pending entries",
    "log.group_read": "an argument, and a page of 1,000 pending entries",
    "log.group_seek": "100 pages of 100 pending entries",
    "log.trim_local": "index steps, an argument",
    "log.clean_copy": "100 entries or 64 KiB",
    "log.drop_segments": "100 segments",
    "log.expire_segments": "100 segments",
    "log.forget_segments": "the rows of a call of log.expire_segments",
    "log.load": "1,000 entries or 1 MiB, before clients are served",
    "log.rebuild": "500 entries or 64 KiB",
    "log.restore": "segments of a partition, before clients are served",
    "schedule.list": "arguments: rows and bytes",
    "share.describe": "100 runs of each kind",
    "transaction.describe": "20,000 members of a transaction",
    "transaction.end": "20,000 members of a transaction",
    "transaction.expire": "20,000 members of a transaction",
    "transaction.list_due": "an argument",
}
"""What bounds a script by itself, without a run that measures it."""


DEAR = {
    "group.consumer_heartbeat",
    "group.modern_describe",
    "log.clean_commit",
    "share.acknowledge",
    "share.acquire",
    "share.release",
}
"""Scripts of WORST whose test takes longest: not in the quick set."""


def is_constant(name: str) -> bool:
    """Return whether the header says that the work does not grow, or with a logarithm only."""
    cost = bundle.load(name).contract.cost.split(",")[0]
    return cost == "O(1)" or cost.startswith("O(log ")


def test_each_script_is_in_one_table() -> None:
    tables = [WORST, ARGUMENTS, BY_STEPS]
    listed = [name for table in tables for name in table]
    assert len(listed) == len(set(listed))
    constant = {name for name in bundle.names() if is_constant(name)} - set(listed)
    assert sorted({*listed, *constant}) == bundle.names()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in DEAR else name for name in WORST]
)
def test_a_script_at_its_limits_does_not_work_for_long(name: str) -> None:
    meter = Meter(name)
    WORST[name](meter)
    factor = RUNS[name][1] if name in RUNS else PART if WORST[name] in CLASSIC else 1
    worst = meter.worst * factor

    assert 0 < worst < LIMIT_US


def test_records_below_a_log_start_are_dropped_in_steps() -> None:
    meter = Meter("share.acquire")
    group = held(meter, 2 * STEP, ordered=1)
    meter.command("HSET", group.part.keys.log, "start", 4 * STEP)
    for left in (STEP, 0, 0):
        meter.worst = 0.0
        reply = group.probe()
        assert reply.wait_ms == (0 if left else -1)
        assert meter.worst < LIMIT_US
        assert group.counts()[3] == left
    assert group.counts()[:2] == (4 * STEP, 4 * STEP)


@pytest.mark.parametrize(("name", "counts"), ARGUMENTS.items())
def test_a_script_with_most_arguments_makes_few_calls(name: str, counts: tuple[int, int]) -> None:
    most = bundle.load(name).contract.most_calls(*counts)
    assert most is not None
    assert most * COMMAND_US + sum(counts) * VALUE_US < LIMIT_US
