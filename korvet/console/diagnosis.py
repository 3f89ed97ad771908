"""Collect the evidence for why a group is stuck, in sentences.

Rules
- Each check looks at one cause and yields what it found; the worst grade comes first.
- Only what Redis has is evidence: heartbeats, commits, transactions, records. A member that polls
  and does not commit looks like one that works on a slow record: both are named.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence

from korvet.base.human import ago, size
from korvet.broker.ops.finding import Finding, worst_first
from korvet.console.browse import large_at, newest
from korvet.console.described_group import DescribedGroup, LockRow, Member, OffsetRow, QueueRow
from korvet.console.render import count
from korvet.console.visit import PageError, Visit
from korvet.library.record_calls import FETCH_BYTES
from korvet.library.values import KorvetError
from korvet.security.acl import Operation, ResourceType

SILENT_MS = 30_000
"""Age of the last commit above which a partition with lag counts as stopped."""
LATE_HEARTBEAT_MS = 6_000
"""Age of the last heartbeat above which it is named, if it is a third of the session too."""
MAX_SENTENCES = 5
"""Max sentences of one kind."""
SAMPLED = 200
"""Newest records whose keys are counted."""


async def evidence(visit: Visit, group: DescribedGroup, rows: Sequence[OffsetRow]) -> list[Finding]:
    """Return the evidence, the causes first."""
    lag = sum(row.lag for row in rows)
    found = [*_members(group, lag), *_heartbeats(group), *_unassigned(group, rows), *_deleted(rows)]
    for checked in (
        _missing_topics(visit, group),
        _transactions(visit, rows),
        _stopped(visit, group, rows),
        _hot_keys(visit, rows),
    ):
        found += [each async for each in checked]
    if lag == 0 and rows and not any(each.grade == "bad" for each in found):
        found.append(Finding("ok", "lag", "It has committed every record: it is not stuck."))
    elif not any(each.grade == "bad" for each in found) and rows:
        found.append(
            Finding(
                "ok",
                "progress",
                f"No cause found: it has {count(lag)} records to go and committed lately. If the "
                "lag grows, it is slower than its producers: add members, up to one per partition.",
            )
        )
    return worst_first(found)


def of_queue(
    group: DescribedGroup, rows: Sequence[QueueRow], locks: Sequence[LockRow]
) -> list[Finding]:
    """Return the evidence for why a share group is stuck."""
    lag = sum(max(0, row.lag) for row in rows)
    found = [*_members(group, lag), *_heartbeats(group)]
    for each in [lock for lock in locks if lock.deliveries > 1][:MAX_SENTENCES]:
        partition = f"{each.topic}-{each.partition}"
        holder = f"locked by {each.member}" if each.member else "released"
        found.append(
            Finding(
                "bad" if each.deliveries > 2 else "note",
                "delivered again",
                f"{partition}: the records from offset {each.first} to {each.last} were delivered "
                f"{each.deliveries} times and are {holder}: consumers fail on them, or their lock "
                "is too short.",
                f"/topics/{each.topic}/records/{each.partition}/{each.first}",
            )
        )
    for row in [row for row in rows if row.dead_letters][:MAX_SENTENCES]:
        found.append(
            Finding(
                "note",
                "dead letters",
                f"{row.topic}-{row.partition}: {count(row.dead_letters)} records wait for their "
                "copy to the dead letter topic.",
            )
        )
    acquired = sum(row.acquired for row in rows)
    if lag and acquired and not sum(row.available for row in rows):
        found.append(
            Finding("note", "locks", f"All {count(acquired)} records to read are with members.")
        )
    if not found:
        text = "It has finished every record." if not lag else "No cause found: members work on it."
        found.append(Finding("ok", "progress", text))
    return worst_first(found)


def _members(group: DescribedGroup, lag: int) -> Iterator[Finding]:
    if group.detail:
        yield Finding(
            "bad",
            "topology",
            f"The group has no tasks until its topics are complete: {group.detail}",
        )
    if group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        yield Finding(
            "bad",
            "rebalance",
            f"The group is in state {group.state}: consumers read nothing, or only what they keep, "
            "until it is Stable. A member that does not come back to poll() delays it.",
        )
    if not group.members:
        yield Finding(
            "bad" if lag else "note",
            "members",
            "The group has no members: no consumer runs, or it uses assign() and only commits.",
        )


def _heartbeats(group: DescribedGroup) -> Iterator[Finding]:
    late = [each for each in group.members if _is_late(each, group.at_ms)]
    for each in late[:MAX_SENTENCES]:
        silent = ago((group.at_ms - each.last_heartbeat_ms) / 1000)
        left = ago((each.deadline_ms - group.at_ms) / 1000)
        yield Finding(
            "bad",
            "heartbeat",
            f"Member {each.id} ({each.client_id} at {each.client_host}) sent its last heartbeat "
            f"{silent} ago. Without another one the broker removes it in {left}; its partitions "
            "wait until then.",
        )


def _is_late(member: Member, now_ms: int) -> bool:
    session_ms = member.deadline_ms - member.last_heartbeat_ms
    age_ms = now_ms - member.last_heartbeat_ms
    return member.last_heartbeat_ms >= 0 and age_ms > max(LATE_HEARTBEAT_MS, session_ms // 3)


def _unassigned(group: DescribedGroup, rows: Sequence[OffsetRow]) -> Iterator[Finding]:
    without = [row for row in rows if not row.member and row.lag]
    if group.members and without:
        names = ", ".join(f"{row.topic}-{row.partition}" for row in without[:MAX_SENTENCES])
        yield Finding(
            "bad",
            "assignment",
            f"No member is assigned {names}{' and others' * (len(without) > MAX_SENTENCES)}, which "
            "have records to read: no member subscribes to the topic, or a rebalance is not done.",
        )


def _deleted(rows: Sequence[OffsetRow]) -> Iterator[Finding]:
    for row in [row for row in rows if 0 <= row.committed < row.first][:MAX_SENTENCES]:
        yield Finding(
            "note",
            "deleted records",
            f"{row.topic}-{row.partition}: the committed offset {row.committed} is below the first "
            f"record {row.first}: records were deleted before the group read them. A consumer "
            "continues where its auto.offset.reset says.",
        )
    for row in [row for row in rows if row.committed > row.end][:MAX_SENTENCES]:
        yield Finding(
            "bad",
            "offset",
            f"{row.topic}-{row.partition}: the committed offset {row.committed} is above the end "
            f"{row.end}: the topic was created again, or Redis lost records. Reset the group.",
        )


async def _missing_topics(visit: Visit, group: DescribedGroup) -> AsyncIterator[Finding]:
    names = sorted(group.subscribed() or ())
    for name in names[:100]:
        sees = visit.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
        if sees and await visit.services.topics.get(name) is None:
            yield Finding("bad", "topic", f"A member subscribes to {name}, which does not exist.")


async def _transactions(visit: Visit, rows: Sequence[OffsetRow]) -> AsyncIterator[Finding]:
    """Find partitions whose next record is above the last stable offset."""
    store, keys = visit.services.store, visit.services.keys
    open_rows = [row for row in rows if row.lag and row.stable < row.end]
    for row in open_rows[:MAX_SENTENCES]:
        key = keys.partition(row.topic, row.partition).open_txns
        oldest = await store.command("ZRANGE", key, 0, 0)
        producer = f" of producer {oldest[0].decode()}" if oldest else ""
        waits = row.committed >= row.stable
        yield Finding(
            "bad" if waits else "note",
            "open transaction",
            f"{row.topic}-{row.partition}: an open transaction{producer} begins at offset "
            f"{row.stable}. Consumers with isolation.level=read_committed "
            + ("wait there until it ends." if waits else "will wait there until it ends."),
            f"/topics/{row.topic}/producers",
        )


async def _stopped(
    visit: Visit, group: DescribedGroup, rows: Sequence[OffsetRow]
) -> AsyncIterator[Finding]:
    """Find assigned partitions with lag whose commit is old: paused, or a record that fails."""
    stopped = [
        row
        for row in rows
        if row.member and row.lag and 0 <= row.commit_ms < group.at_ms - SILENT_MS
    ]
    for row in stopped[:MAX_SENTENCES]:
        since = ago((group.at_ms - row.commit_ms) / 1000)
        sentence = (
            f"{row.topic}-{row.partition}: {count(row.lag)} records wait, and the last commit was "
            f"{since} ago, though member {row.member} sends heartbeats."
        )
        path = ""
        if visit.may(Operation.READ, ResourceType.TOPIC, row.topic):
            record = await _next_record(visit, row)
            if record:
                offset, shown = record
                path = f"/topics/{row.topic}/records/{row.partition}/{offset}"
                sentence += (
                    f" The next record is at offset {offset} ({shown}): if the consumer fails on "
                    "it, it is a poison record. Otherwise the partition is paused, or one record "
                    "takes that long."
                )
        yield Finding("bad", "no progress", sentence, path)


async def _next_record(visit: Visit, row: OffsetRow) -> tuple[int, str] | None:
    start = max(row.committed, row.first)
    large = await large_at(visit.log, row.topic, row.partition, start)
    if large is not None:
        return start, f"with those before offset {large.next_offset}, {size(large.size)}"
    try:
        got = await visit.read(row.topic, row.partition, start, max_bytes=1)
    except (KorvetError, PageError):
        return None
    if not got.records:
        return None
    record = got.records[0]
    key = "no key" if record.key is None else f"key {record.key[:60].decode('utf-8', 'replace')}"
    return record.offset, f"{key}, {size(len(record.value or b''))}"


async def _hot_keys(visit: Visit, rows: Sequence[OffsetRow]) -> AsyncIterator[Finding]:
    """Find a partition with most of a topic's lag, and a key with most of its newest records."""
    by_topic: dict[str, list[OffsetRow]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(row)
    for name, parts in list(by_topic.items())[:MAX_SENTENCES]:
        lag = sum(row.lag for row in parts)
        worst = max(parts, key=lambda row: row.lag)
        if len(parts) < 2 or lag < 100 or worst.lag < 0.8 * lag:
            continue
        sentence = f"{name}-{worst.partition} has {worst.lag * 100 // lag}% of the topic's lag."
        if visit.may(Operation.READ, ResourceType.TOPIC, name):
            sentence += await _hottest_key(visit, name, worst.partition)
        yield Finding("note", "hot partition", sentence, f"/topics/{name}")


async def _hottest_key(visit: Visit, name: str, partition: int) -> str:
    topic = await visit.services.topics.get(name)
    if topic is None:
        return ""
    ends = {partition: (await visit.log.offsets(name))[partition]}
    start = (await newest(visit.log, topic, ends, {partition: SAMPLED}))[partition]
    keys: Counter[bytes | None] = Counter()
    if await large_at(visit.log, name, partition, start) is not None:
        return ""
    try:
        got = await visit.read(name, partition, start, FETCH_BYTES)
    except (KorvetError, PageError):
        return ""
    keys.update(record.key for record in got.records[:SAMPLED])
    if not keys:
        return ""
    key, times = keys.most_common(1)[0]
    if key is None or times < 0.5 * keys.total():
        return ""
    shown = key[:60].decode("utf-8", "replace")
    return (
        f" Key {shown} has {times} of its newest {keys.total()} records: one member reads them all."
    )
