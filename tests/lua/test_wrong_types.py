"""Check that a script writes everything or nothing if any of its keys has another type."""

from typing import Any

from korvet.base.errors import ErrorCode
from korvet.groups.stream_reads import CLAIM_ALL
from korvet.remote_log.recovery.loader import arguments_after
from korvet.scripts import bundle
from korvet.scripts.append_call import append_many, batch_of
from tests.lua.groups import RETENTION_MS, SESSION_MS, TOPIC_ID, commit_call
from tests.lua.groups import Group as ClassicGroup
from tests.lua.partition import ID, KEYS, Part
from tests.lua.share import LOCK_MS
from tests.lua.share import Group as ShareGroup
from tests.lua.streams import COUNTING
from tests.lua.streams import Group as StreamsGroup
from tests.lua.test_group_consumer_heartbeat import Group as ConsumerGroup
from tests.lua.test_group_consumer_heartbeat import Member, settle
from tests.lua.test_group_share_heartbeat import Group as ShareMembers
from tests.lua.test_leader_epochs import begin as begin_epoch
from tests.lua.test_schedule import add as schedule_batch
from tests.lua.test_schedule import cancel as cancel_row
from tests.lua.test_schedule import move
from tests.lua.test_schedule import row as schedule_row
from tests.lua.transactions import Coordinator, Logs
from tests.lua.wrong_type_runner import Doubting
from tests.support.redis_servers import TestServer

ROW = ("t", 0, 5, -1, TOPIC_ID, "")
KNOWN = {"member": "", "instance": "", "generation": -1, "is_registered": 1}


def txn_commit(lua: Doubting, producer: int = 9, **who: Any) -> int:
    call = KEYS.group("g").txn_commit(
        KEYS.commit_rows([ROW]),
        **{**KNOWN, **who},
        producer_id=producer,
        producer_epoch=0,
        transaction=1,
    )
    return lua.run(call).error


def txn_complete(lua: Doubting, producer: int) -> int:
    call = KEYS.group("g").txn_complete(
        producer_id=producer, producer_epoch=0, transaction=1, committed=1
    )
    return lua.run(call).error


def a_classic_group(lua: Doubting) -> None:
    group = ClassicGroup(lua, "g", delay_ms=3000)
    first = group.join(require_member_id=1).member.decode()
    group.join(first, require_member_id=1)
    group.join(instance="i")
    for _ in range(2):
        lua.advance(3000)
        group.tick()
    members = [first, "m2"]
    generation = group.poll_join(first).generation
    for member in members:
        group.sync(member, generation, tuple((each, b"part") for each in members))
    assert group.heartbeats((first, "", generation), ("m2", "i", generation)) == [0, 0]
    assert group.commit(5, member=first, generation=generation) == 0
    assert txn_commit(lua, member=first, generation=generation) == txn_complete(lua, 9) == 0
    assert group.join(instance="i").generation == generation
    lua.tried.clear()
    group.leave((first, ""))
    lua.advance(SESSION_MS)
    group.tick()
    assert group.state == "Empty"
    lua.advance(RETENTION_MS)
    lua.tried.clear()
    group.tick()
    assert group.commit(5) == 0
    lua.tried.clear()
    assert txn_commit(lua, 10) == txn_commit(lua, 11) == txn_complete(lua, 11) == 0
    field = KEYS.partition("orders", 0).stream
    forget = KEYS.group("g").delete_offsets(
        [field], state="Empty", generation=group.describe(0).generation
    )
    assert lua.run(forget).removed == 1
    assert group.delete().error == 0


def a_consumer_group(lua: Doubting) -> None:
    group = ConsumerGroup(lua)
    one, two = Member(group, "m1"), Member(group, "m2", instance="i")
    settle([one, two])
    lua.tried.clear()
    group.beat("m2", -2, instance="i")
    three = Member(group, "m3", instance="i")
    settle([one, three])
    call = commit_call([ROW], "m1", one.epoch)
    assert lua.run(call).error == 0
    owned, _, number = min(one.held).partition(":")
    cells = [(f"korvet:t:{number}", "", 6, owned, "")]
    commit_owned = KEYS.group("g").commit_owned(cells, member="m1", epoch=one.epoch)
    assert lua.run(commit_owned).error == 0
    lua.tried.clear()
    assert txn_commit(lua, member="m1", generation=one.epoch) == txn_complete(lua, 9) == 0
    assert lua.run(KEYS.group("g").leave([("m1", "")])).results == [0]
    for ms in (SESSION_MS, 2 * SESSION_MS, RETENTION_MS):
        lua.advance(ms)
        lua.tried.clear()
        group.tick()


def members_of_a_share_group(lua: Doubting) -> None:
    group = ShareMembers(lua)
    assert group.alter(("t", "a" * 32), creates=1) == 0
    for member in ("m1", "m2"):
        lua.tried.clear()
        assert group.beat(member, 0).error == 0
    lua.tried.clear()
    assert group.beat("m1", 1).error == group.beat("m2", -1).error == 0


def a_streams_group(lua: Doubting) -> None:
    group = StreamsGroup(lua, COUNTING)
    for member in ("m1", "m2"):
        lua.tried.clear()
        assert group.beat(member, 0, endpoint="me:7", replicas=1).error == 0
    lua.tried.clear()
    assert group.beat("m1", 2).error == group.beat("m2", -1).error == 0


def transactions_in(lua: Doubting, mode: str) -> None:
    logs = Logs(lua, 2, mode).create()
    coordinator = Coordinator(logs)
    for committed in (True, False):
        lua.tried.clear()
        began = coordinator.init()
        producer, epoch = began.producer_id, began.producer_epoch
        number = coordinator.add(producer, epoch, [0, 1]).transaction
        assert logs.begin(0, producer, epoch, number) == 0
        assert logs.append(0, b"v", (producer, epoch, 0), 0).error == 0
        assert logs.append(1, b"v", (producer, epoch, 0), number).error == 0
        reply = coordinator.finish(producer, epoch, committed, bump=False)
        for step in coordinator.steps(reply, committed):
            step()
    assert len(logs.committed(0)) == len(logs.committed(1)) == 1
    assert logs.append(0, b"v", (7, 0, 0), 1).error == 0
    assert logs.close(7, 0, 1).error == 0
    began = coordinator.init()
    coordinator.add(began.producer_id, began.producer_epoch, [0])
    lua.advance(60_000)
    assert coordinator.look().pending
    coordinator.settle()
    assert (
        lua.run(KEYS.transaction("tx").expire(forget_ms=0, completion_timeout_ms=0)).wait_ms == -1
    )


def a_log(lua: Doubting, form: str, mode: str) -> None:
    part = Part(lua, form, mode).create()
    if form == "record" and mode != "bytes":
        with_id = [4, b"header.korvet-dedupe-id", b"id", b"value", b"v"]
        for window in (1_000, 2_000):
            assert lua.run(part.keys.set_dedupe(window=window, max_ids=1)).error == 0
            assert part.append(fields=with_id).error == 0
        assert lua.run(part.keys.set_table(action="on")).behind == 1
        with_key = [4, b"key", b"k", b"value", b"v"]
        assert part.append(fields=with_key).error == 0  # not level: the fill is behind
        assert lua.run(part.keys.fill_table((), at_most=10)).more == 0
        assert part.append(fields=with_key).error == 0
    if form == "record":
        part.native()
        lua.run(KEYS.partition("t", 0, ID).number_entries())
        lua.run(KEYS.partition("t", 0, ID).drop_unnumbered(after=b"", delete=1))
        part.native()
        assert lua.run(KEYS.partition("t", 0, ID).lag(offset=0)).error == 0
        part.adopt()
    part.append(2, size=70_000, producer_id=1, producer_epoch=0, base_sequence=0)
    batches = [batch_of(part.call(2, size=70_000)) for _ in range(3)]
    assert not lua.run(append_many(KEYS, [("t", 0, ID, 0, batches)])).reason
    place = KEYS.partition("t", 0, ID)
    deliver = place.group_read(group="g", consumer="c", offset=0, count=2, claim=CLAIM_ALL)
    assert lua.run(deliver).error == 0
    seek = place.group_seek(group="g", offset=part.offsets()[2], move=0)
    assert lua.run(seek).error == 0
    assert part.retain(size=100_000).removed
    assert part.truncate(part.offsets()[1]).removed
    assert part.append(1).error == 0
    lua.tried.clear()
    assert begin_epoch(part, 1, part.bounds().next + 5).lost >= 0
    lua.advance(10)
    lua.tried.clear()
    assert part.retain(ms=1).error == part.truncate(-1).error == 0


def a_rebuild(lua: Doubting) -> None:
    part, top = Part(lua, mode="dense").create(), 2**64 - 1
    part.append(4)
    lua.command("XADD", part.keys.stream, f"{top}-{top}", "value", "last")
    ids, place = part.ids()[:4], KEYS.partition("t", 0, ID)
    assert lua.run(place.number_entries()).error == 0
    assert lua.run(place.drop_unnumbered(after=b"", delete=1)).entries == 1
    for length, more in ((0, 1), (3, 0)):
        reply = lua.run(place.rebuild(token="me", length=length, at_most=3))
        assert (reply.error, reply.more, part.ids()) == (0, more, ids)
    assert part.append(1).base == 4


def a_compaction(lua: Doubting) -> None:
    part = Part(lua, mode="dense").create()
    part.append(4)
    ids, place = part.ids(), KEYS.partition("t", 0, ID)
    begin = place.clean_begin(token="me", lag_ms=0, tombstone_ms=0, dirty=0)
    assert lua.run(begin).due
    assert lua.run(place.clean_copy([(ids[0], ids[0])], token="me", length=0)).copied == 1
    put = place.clean_rewrite([b"value", b"shorter"], token="me", length=1, id=ids[1])
    assert lua.run(put).error == 0
    swap = place.clean_commit(
        token="me",
        length=2,
        start=0,
        limit=3,
        cleaned=3,
        cleaned_bytes=30,
        start_bytes=0,
        start_records=0,
        tombstones=0,
        tombstone_ms=0,
        at_most=100,
        rows=["0:-1:0:0"],
    )
    reply = lua.run(swap)
    assert (reply.error, reply.more, part.ids()) == (0, 0, [*ids[:2], ids[3]])


def topics(lua: Doubting, mode: str) -> None:
    shape = {"topic_id": ID, "format": "record", "mode": mode, "bits": 10}
    cut = KEYS.partition("cut", 0, ID)
    assert lua.run(cut.create(format="record", mode=mode, bits=10)).opened
    assert lua.run(cut.delete()).deleted
    made = KEYS.topic_create(KEYS.logs("t", range(2)), topic="t", definition=b"2", **shape)
    grown = {"topic": "t", "expected": b"2", "definition": b"3"}
    assert lua.run(made).error == 0
    added = KEYS.topic_add_partitions(KEYS.logs("t", range(2, 3)), **grown, **shape)
    assert lua.run(added).error == 0
    for name in "abc":
        ClassicGroup(lua, name).commit(5)
        lua.command("HSET", KEYS.group_offsets(name), KEYS.partition("t", 2).stream, "5")
    version: Any = lua.command("HGET", KEYS.groups(), ":version")
    gone: dict[str, Any] = {"topic": "t", "expected": b"3", "registry_version": version}
    gone |= {"partitions": 3, "remote_id": ID}
    assert (
        lua.run(KEYS.topic_delete(*KEYS.topic_parts("t", 3, "abc"), **gone)).error == ErrorCode.NONE
    )


def segments(lua: Doubting) -> None:
    part = Part(lua, mode="dense").create()
    for _ in range(4):
        part.append(size=65_536)
    claim = KEYS.partition("t", 0, ID).claim_copy(holder="a", ttl_ms=1000)
    assert lua.run(claim).fence == 1
    place = {"first": 0, "last": 1, "records": 2, "size": 9, "row": "9:5:id"}
    again = {**place, "first": 2, "last": 2, "records": 1}
    assert lua.run(KEYS.partition("t", 0, ID).add_segment(fence=1, **place)).added == 1
    trim = KEYS.partition("t", 0, ID).trim_local(before=1, steps=64)
    assert lua.run(trim).start == 1
    limits = {"retention_ms": -1, "retention_bytes": 0}
    local = KEYS.partition("t", 0, ID).apply_retention(**limits, steps=64, is_local=1)
    assert lua.run(local).removed == 1
    expire = KEYS.partition("t", 0, ID).expire_segments(**limits, delay_ms=0, most=9)
    assert lua.run(expire).removed == 1
    assert lua.run(KEYS.partition("t", 0, ID).add_segment(fence=1, **again)).added == 1
    drop = KEYS.partition("t", 0, ID).drop_segments(delay_ms=0, most=9)
    assert lua.run(drop).removed == 1
    gone = KEYS.topic_delete_definition(topic="t", expected=b"{}", remote_id=ID)
    assert lua.run(gone).error == 0
    shape: Any = {"format": "batch", "mode": "dense", "bits": 10}
    rows = [(0, 1, 2, 9, "9:5:id")]
    restore = KEYS.partition("u", 0, ID).restore(rows, **shape, epoch=0, start=0, next=5)
    assert lua.run(restore).restored == 1
    empty = KEYS.partition("v", 0, ID).restore([], **shape, epoch=0, start=0, next=0)
    assert lua.run(empty).restored == 0
    entry = (0, 1, 2, 9, 5, [b"batch", b"x", b"count", b"2"])
    aborted = [("7:0:2", 1)]
    load = KEYS.partition("v", 0, ID).load(arguments_after([entry], aborted), next=5)
    assert lua.run(load).next == 5


def a_share_group(lua: Doubting) -> None:
    part = Part(lua, mode="dense").create()
    part.append(10)
    group = ShareGroup(part)
    assert group.acquire("m", (0, 3)) == [(0, 3, 1)]
    assert group.acquire("n", (4, 7)) == [(4, 7, 1)]
    assert group.acknowledge("m", (0, 0, 1), (1, 1, 2)) == 0
    part.truncate(1)
    lua.tried.clear()
    assert group.acquire("m", (1, 9), max_locks=8) == [(1, 1, 2), (8, 9, 1)]
    assert group.acknowledge("m", (1, 1, 1), (8, 9, 1)) == 0
    assert group.hold("n", 4, 5, ends_steps=1, lock_ms=LOCK_MS) == [4, 5]
    lua.advance(LOCK_MS)
    lua.tried.clear()
    assert group.release("n") == 0
    assert group.acquire("n", (1, 9)) == [(2, 7, 2)]
    assert group.release("n") == 6
    group.dead_letters = 1
    group.acquire("m", (2, 9))
    assert group.acknowledge("m", (3, 5, 3)) == 0
    assert group.list_dead_letters(producer_id=7) == (7, [(0, 3, 5, 3, 1)])
    assert group.copied(2) == 1
    place = KEYS.partition("t", 0, ID)
    assert lua.run(place.share_reset(group="g", offset=3)).error == 0
    group.acquire("m", (3, 9))
    assert lua.run(place.share_delete(group="g")).deleted == 1


def scheduled(lua: Doubting, form: str) -> None:
    part = Part(lua, form, "dense").create()
    waiting = [schedule_row(part, b"%d" % n, "at", 5, b"%d" % n) for n in range(4)]
    who = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    fields = {"ordinary": 1, "fields": part.fields(1), "size": 70_000}
    assert schedule_batch(part, *waiting, **fields, **who).error == 0
    assert schedule_batch(part, *waiting[:2], cancel_row(b"3")).error == 0
    cancel = KEYS.partition("t", 0, ID).schedule_cancel(id=b"2")
    assert lua.run(cancel).cancelled == 1
    assert move(part).records == 2


def test_no_script_leaves_a_half_where_a_key_is_of_another_type(redis_server: TestServer) -> None:
    tried: set[str] = set()
    for story, *words in (
        (a_classic_group,),
        (a_consumer_group,),
        (members_of_a_share_group,),
        (a_streams_group,),
        (transactions_in, "time"),
        (transactions_in, "dense"),
        (a_log, "record", "time"),
        (a_log, "record", "dense"),
        (a_log, "batch", "dense"),
        (a_log, "record", "bytes"),
        (a_compaction,),
        (a_rebuild,),
        (topics, "time"),
        (topics, "dense"),
        (segments,),
        (a_share_group,),
        (scheduled, "record"),
        (scheduled, "batch"),
    ):
        with redis_server.client() as client:
            lua = Doubting(client)
            story(lua, *words)  # type: ignore[operator]
            tried |= lua.ever
    contracts = [bundle.load(name).contract for name in bundle.names()]
    several = {c.name for c in contracts if c.writes and len(c.keys) > 1}
    assert tried >= several
