"""Redis's clock is set back or forward: what waits for a moment waits no longer than it should."""

from collections.abc import Callable

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts import bundle
from korvet.testing import LuaRunner
from tests.lua.groups import Group as ClassicGroup
from tests.lua.partition import ID, KEYS, Part
from tests.lua.share import LOCK_MS
from tests.lua.share import Group as ShareState
from tests.lua.streams import Group as StreamsGroup
from tests.lua.test_group_consumer_heartbeat import Group as ConsumerGroup
from tests.lua.test_group_consumer_heartbeat import Member
from tests.lua.test_group_share_heartbeat import Group as ShareGroup
from tests.lua.test_leader_epochs import seen as epoch_of
from tests.lua.test_quota import charge
from tests.lua.test_schedule import add as schedule_rows
from tests.lua.test_schedule import move as move_due
from tests.lua.test_schedule import row as schedule_row
from tests.lua.test_schedule import values
from tests.lua.transactions import TIMEOUT_MS, Coordinator, Logs

BACK_MS = 600_000
STEP_MS = 5_000
"""The longest time that a moment is late, apart from its own duration."""
SHORT_MS = 10_000

Ended = Callable[[], bool]
Kind = Callable[[LuaRunner], tuple[int, Ended]]
"""Begins to wait: returns the duration, and a function that returns whether the wait has ended."""


def is_gone(lua: LuaRunner, key: str, tick: Callable[[], object]) -> Ended:
    def ended() -> bool:
        tick()
        return not lua.command("EXISTS", key)

    return ended


def classic_member(lua: LuaRunner) -> tuple[int, Ended]:
    readers = ClassicGroup(lua)
    readers.stable()
    return SHORT_MS, is_gone(lua, KEYS.group("readers").members, readers.tick)


def waiting_id(lua: LuaRunner) -> tuple[int, Ended]:
    readers = ClassicGroup(lua)
    assert readers.join(require_member_id=1).error == ErrorCode.MEMBER_ID_REQUIRED
    return SHORT_MS, is_gone(lua, KEYS.group("readers").members, readers.tick)


def join_phase(lua: LuaRunner) -> tuple[int, Ended]:
    readers = ClassicGroup(lua)
    readers.stable(session_ms=60_000, rebalance_ms=SHORT_MS)
    second = readers.join(session_ms=60_000, rebalance_ms=SHORT_MS).member.decode()
    return SHORT_MS, lambda: not readers.poll_join(second).waiting


def consumer_member(lua: LuaRunner) -> tuple[int, Ended]:
    readers = ConsumerGroup(lua)
    readers.beat("m", 0, session_ms=SHORT_MS)
    return SHORT_MS, is_gone(lua, KEYS.group("g").consumer_members, readers.tick)


def revoking_member(lua: LuaRunner) -> tuple[int, Ended]:
    readers = ConsumerGroup(lua, 2)
    slow, other = Member(readers, "m1", rebalance_ms=SHORT_MS), Member(readers, "m2")
    slow.step()
    other.step()
    held, epoch = set(slow.held), slow.epoch
    readers.beat("m1", epoch, held)

    def ended() -> bool:
        other.step()
        return readers.beat("m1", epoch, held).error == ErrorCode.UNKNOWN_MEMBER_ID

    return SHORT_MS, ended


def share_member(lua: LuaRunner) -> tuple[int, Ended]:
    readers = ShareGroup(lua)
    readers.beat("m", 0, session_ms=SHORT_MS)
    return SHORT_MS, is_gone(lua, KEYS.group("g").consumer_members, readers.tick)


def streams_member(lua: LuaRunner) -> tuple[int, Ended]:
    readers = StreamsGroup(lua)
    readers.beat("m", 0, session_ms=SHORT_MS)
    return SHORT_MS, is_gone(lua, KEYS.group("g").consumer_members, readers.tick)


def first_streams_assignment(lua: LuaRunner) -> tuple[int, Ended]:
    readers = StreamsGroup(lua)
    epoch = readers.beat("m", 0, delay_ms=SHORT_MS).epoch
    return SHORT_MS, lambda: readers.beat("m", epoch, delay_ms=SHORT_MS).epoch > epoch


def share_lock(lua: LuaRunner) -> tuple[int, Ended]:
    readers = ShareState(Part(lua).create())
    readers.part.append()
    offset = readers.part.offsets()[0]
    readers.start = offset
    assert readers.acquire("dead", (offset, offset)) == [(offset, offset, 1)]
    return LOCK_MS, lambda: bool(readers.acquire("m", (offset, offset)))


def share_delay(lua: LuaRunner) -> tuple[int, Ended]:
    readers = ShareState(Part(lua, mode="dense").create())
    readers.part.append()
    readers.acquire("m", (0, 0))
    call = readers.acknowledge("m", (0, 0, 2), backoff_ms=SHORT_MS, max_backoff_ms=SHORT_MS)
    assert call == ErrorCode.NONE
    return SHORT_MS, lambda: bool(readers.acquire("m", (0, 0)))


def open_transaction(lua: LuaRunner) -> tuple[int, Ended]:
    tx = Coordinator(Logs(lua).create())
    tx.add(tx.init().producer_id, 0, [0])
    return TIMEOUT_MS, lambda: tx.look().pending == 1


def unfinished_end(lua: LuaRunner) -> tuple[int, Ended]:
    tx = Coordinator(Logs(lua).create())
    producer = tx.init().producer_id
    tx.add(producer, 0, [0])
    tx.finish(producer, 0, True, False)
    return SHORT_MS, lambda: tx.look(completion_timeout_ms=SHORT_MS).pending == 1


def due_group(lua: LuaRunner) -> tuple[int, Ended]:
    lua.run(KEYS.group_schedule_tick(group="readers", after_ms=SHORT_MS))
    return 0, lambda: bool(lua.run(KEYS.group_claim_due(hold_ms=10_000, limit=10)).groups)


def due_transaction(lua: LuaRunner) -> tuple[int, Ended]:
    lua.run(KEYS.transaction_schedule_check(id="tx", after_ms=SHORT_MS))
    return 0, lambda: bool(lua.run(KEYS.transaction_list_due(limit=10)).ids)


def task_lease(lua: LuaRunner) -> tuple[int, Ended]:
    def hold(holder: str) -> bool:
        return lua.run(KEYS.broker_lease(name="x", holder=holder, ttl_ms=SHORT_MS)).held == 1

    assert hold("dead")
    return 0, lambda: hold("live")


def copy_lease(lua: LuaRunner) -> tuple[int, Ended]:
    Part(lua).create()

    def hold(holder: str) -> bool:
        call = KEYS.partition("t", 0, ID).claim_copy(holder=holder, ttl_ms=SHORT_MS)
        return lua.run(call).fence > 0

    assert hold("dead")
    return 0, lambda: hold("live")


def registration(lua: LuaRunner) -> tuple[int, Ended]:
    def live(node_id: int) -> int:
        address = b"a%d" % node_id
        call = KEYS.broker_register(node_id=node_id, address=address, ttl_ms=SHORT_MS)
        return len(lua.run(call).brokers) // 2

    live(1)
    return SHORT_MS, lambda: live(2) == 1


def quota_debt(lua: LuaRunner) -> tuple[int, Ended]:
    charge(lua, 1_050, strict=True)
    return 10_000, lambda: charge(lua, 1, strict=True) == 0


def scheduled_delay(lua: LuaRunner) -> tuple[int, Ended]:
    part = Part(lua).create()
    schedule_rows(part, schedule_row(part, b"far", "in", 2 * BACK_MS))
    lua.advance(60_000)
    schedule_rows(part, schedule_row(part, b"late", "in", SHORT_MS))
    return SHORT_MS, lambda: move_due(part).records == 1


def epoch_witness(lua: LuaRunner) -> tuple[int, Ended]:
    for run, begun in (("a", -1), ("b", 0)):
        epoch_of(lua, run, begun=begun, witness="gone"), epoch_of(lua, run, witness="1/0")
    duration_ms = epoch_of(lua, "b", begun=1, witness="1/0").wait_ms
    return duration_ms, lambda: epoch_of(lua, "b", begun=1, witness="1/0").wait_ms == 0


KINDS: list[Kind] = [
    classic_member,
    waiting_id,
    join_phase,
    consumer_member,
    revoking_member,
    share_member,
    streams_member,
    first_streams_assignment,
    share_lock,
    share_delay,
    open_transaction,
    unfinished_end,
    due_group,
    due_transaction,
    task_lease,
    copy_lease,
    registration,
    quota_debt,
    scheduled_delay,
    epoch_witness,
]


@pytest.mark.parametrize("back_ms", [STEP_MS + 1, BACK_MS, 30 * 24 * 3_600_000])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_clock_that_was_set_back_prolongs_no_wait(
    lua: LuaRunner, kind: Kind, back_ms: int
) -> None:
    duration_ms, ended = kind(lua)
    lua.advance(-back_ms)
    waited_ms = 0
    is_over = ended()
    assert duration_ms == 0 or not is_over, "it begins anew at most"
    while not is_over and waited_ms < 3 * duration_ms + 70_000:
        lua.advance(1_000)
        waited_ms += 1_000
        is_over = ended()
    lease_ms = 60_000 if kind in (task_lease, copy_lease) and back_ms < 60_000 else 0
    assert is_over
    assert duration_ms - STEP_MS <= waited_ms <= duration_ms * 1.1 + STEP_MS + 1_000 + lease_ms


USES = {
    "they only read": """
        group.check_epoch group.describe group.list_share_topics group.modern_describe
        log.list_offsets schedule.list share.describe transaction.describe
    """,
    "they leave it to group.tick": """
        group.commit group.consumer_heartbeat group.delete group.delete_offsets group.heartbeat
        group.join group.leave group.poll_join group.share_alter_topics group.share_heartbeat
        group.streams_heartbeat group.sync group.txn_commit
    """,
    "they are of the kinds above": """
        broker.claim_id broker.lease broker.raise_epoch broker.register group.claim_due
        group.release_claim group.schedule_tick group.tick log.claim_copy quota.charge
        share.acknowledge share.acquire share.hold share.release transaction.add_partitions
        transaction.complete transaction.end transaction.expire transaction.init
        transaction.list_due transaction.schedule_check schedule.add schedule.append_due
        schedule.cancel
    """,
    "they only store a state": """
        share.dead_letters share.dead_letters_copied share.reset
    """,
    "the time begins a number that only grows": """
        acl.create acl.delete config.alter producer.allocate topic.add_partitions topic.alter
        topic.create user.alter
    """,
    "nothing waits for ages of records, ids, commits, objects, tombstones, idle producers": """
        group.commit_owned group.record_lag group.txn_complete log.abort_hanging_txn log.adopt
        log.append log.append_many log.apply_retention log.begin_epoch log.begin_txn log.clean_begin
        log.clean_commit log.drop_segments log.expire_producers log.expire_segments log.fill_table
        log.load log.restore log.set_dedupe log.write_txn_marker topic.delete
        topic.delete_definition log.delete_records log.group_read log.lag log.number_entries
    """,
}
"""What scripts do with the time."""


def test_what_every_script_does_with_the_time_is_known() -> None:
    texts = {name: bundle.load(name).text for name in bundle.names()}
    found = {name for name, text in texts.items() if '"lib.clock"' in text}
    assert sorted(found) == sorted(" ".join(USES.values()).split())


def test_members_that_send_heartbeats_stay_when_the_clock_is_set_back(lua: LuaRunner) -> None:
    readers = ClassicGroup(lua)
    (member,), generation = readers.stable()
    for step_ms in (-BACK_MS, 3_000, 3_000, -BACK_MS, 3_000, 3_000, 3_000, 3_000):
        lua.advance(step_ms)
        assert readers.heartbeat(member, generation) == ErrorCode.NONE


@pytest.mark.parametrize("ahead_ms", [9_000, 12_000, BACK_MS])
def test_members_stay_when_the_clock_is_set_forward(lua: LuaRunner, ahead_ms: int) -> None:
    """The broker knows what time to expect."""
    readers = ClassicGroup(lua)
    (member,), generation = readers.stable()
    expected_ms = lua.now_ms() + 1_000
    lua.advance(ahead_ms)
    lua.run(KEYS.group("readers").tick(retention_ms=10**9, present_ms=-1, expected_ms=expected_ms))
    assert readers.heartbeat(member, generation) == ErrorCode.NONE


def test_a_record_with_a_time_waits_for_it_when_the_clock_is_set_back(lua: LuaRunner) -> None:
    part = Part(lua).create()
    begin = lua.now_ms()
    schedule_rows(part, schedule_row(part, b"at", "at", begin + SHORT_MS))
    schedule_rows(part, schedule_row(part, b"in", "in", SHORT_MS))
    lua.advance(-BACK_MS)
    assert move_due(part).wait_ms == SHORT_MS
    found = lua.run(KEYS.partition("t", 0, ID).schedule_list(most=10))
    assert [row[1] for row in (found.rows[:5], found.rows[5:])] == [
        b"%d" % (begin - BACK_MS + SHORT_MS),
        b"%d" % (begin + SHORT_MS),
    ]
    lua.advance(SHORT_MS)
    assert move_due(part).wait_ms == BACK_MS
    lua.advance(BACK_MS)
    assert move_due(part).wait_ms == -1
    assert values(part) == [b"in", b"at"]


@pytest.mark.parametrize("back_ms", [1, 999, 4_999])
def test_a_delay_is_exact_after_a_small_step(lua: LuaRunner, back_ms: int) -> None:
    part = Part(lua).create()
    schedule_rows(part, schedule_row(part, b"in", "in", SHORT_MS))
    for _ in range(3):
        lua.advance(-back_ms)
        assert move_due(part).wait_ms == SHORT_MS
    lua.advance(SHORT_MS)
    assert move_due(part).records == 1


def test_a_lock_that_was_renewed_after_the_step_lasts(lua: LuaRunner) -> None:
    readers = ShareState(Part(lua, mode="dense").create())
    readers.part.append(2)
    readers.acquire("m", (0, 1))
    lua.advance(-BACK_MS)
    assert readers.acknowledge("m", (0, 0, 4)) == ErrorCode.NONE
    lua.advance(LOCK_MS - 1)
    assert readers.acquire("other", (0, 1)) == []
    assert readers.accept("m", 0, 1) == ErrorCode.NONE


def test_many_due_groups_are_claimed_in_pages_after_the_step(lua: LuaRunner) -> None:
    for number in range(1_500):
        lua.run(KEYS.group_schedule_tick(group=f"g{number}", after_ms=60_000 + number))
    lua.advance(-BACK_MS)
    claimed: list[bytes] = []
    claim = KEYS.group_claim_due(hold_ms=10_000, limit=1_000)
    for _ in range(3):
        claimed += lua.run(claim).groups
    assert len(set(claimed)) == len(claimed) == 1_500
    assert lua.run(claim).groups == []
