"""Run clients while a fault happens, and say what they may complain of.

`python -m tests.faults --write` runs every fault with every setting. It writes
`results.json` here, of which the table in docs/concepts/durability.md is made. Its exit
code is 1 if there is an anomaly.
"""

import io
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from korvet import cli
from tests.faults.load import (
    Client,
    Idempotent,
    Program,
    Reader,
    Transactions,
    key_of,
    longest_gap,
    stored,
)
from tests.faults.table import ACKED, DURABILITY, FAULTS, FORGETS, KEEPS, LOSES
from tests.faults.world import World, world
from tests.interop.conftest import create_topic
from tests.interop.members import Member
from tests.interop.share_members import ShareMember, Tally, configure_group
from tests.support.raw_client import until

TIERED = {"remote_storage_enable": "true", "segment_bytes": "20000", "local_retention_bytes": "1"}
COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.01",
    "storage_format": "record",
}
SLOW_S = 0.02
"""Time between two records, or transactions, of the compacted topic."""
PATIENCE_S = 60.0
SHAPES = [("dense", "record"), ("time", "record"), ("dense", "batch"), ("time", "batch")]
"""Offset modes and layouts of the topics, by the seed."""


class Outcome(msgspec.Struct):
    """The result of one run."""

    lost: int
    """Acknowledged records that are not there."""
    lost_s: float
    """Time between the first and the last acknowledgement of those, in s."""
    noticed: bool
    """Whether the consumer got an error that says it."""
    gap_s: float
    """The longest time without an acknowledgement."""
    anomalies: list[str] = []


RESULTS = Path(__file__).parent / "results.json"


class Cell(msgspec.Struct):
    """The worst of all runs of a fault with one setting."""

    fault: str
    setting: str
    runs: int = 0
    lost: int = 0
    lost_s: float = 0.0
    noticed: int = 0
    """Runs in which the consumer got an error that says it."""
    gap_s: float = 0.0
    with_others: int = 0
    """Runs with consumers of other clients."""
    anomalies: list[str] = []

    def add(self, outcome: Outcome, with_others: bool) -> None:
        self.runs += 1
        self.with_others += with_others
        self.lost = max(self.lost, outcome.lost)
        self.lost_s = max(self.lost_s, outcome.lost_s)
        self.noticed += outcome.noticed
        self.gap_s = max(self.gap_s, outcome.gap_s)
        self.anomalies += outcome.anomalies


def run(
    folder: Path,
    fault: str,
    setting: str,
    mode: str,
    form: str,
    seed: int,
    programs: Mapping[str, Sequence[str]] | None = None,
    *,
    is_tiered: bool = False,
) -> Outcome:
    """Run the clients, let the fault happen, and judge what they have seen.

    `programs` are consumers of other clients, by name. `is_tiered`: records leave Redis for
    segments within about a second.
    """
    row = FAULTS[fault]
    promise = row.promises[setting]
    configs = {"durability": setting} if setting in (*DURABILITY, "fsync") else {}
    tiered = configs | (TIERED if is_tiered else {})
    has_table = not row.is_planned
    with world(row.store, folder, setting, mode, form, seed, row.is_planned) as at:
        plain, grouped = [create_topic(at.addresses, **tiered) for _ in range(2)]
        sink = Idempotent(at.addresses, plain, seed)
        transactions = Transactions(at.addresses, grouped, seed)
        readers = Reader(at.addresses, plain, seed), Reader(at.addresses, grouped, seed)
        # The earlier version has no tables.
        table = {"table_enable": "true"} if has_table else {}
        upserts = Upserts(at, configs | table, seed)
        at.topics = [plain, grouped, upserts.topic]
        # How much each writes before the fault, and after it.
        writers = {sink: 60, transactions: 5, upserts.plain: 10, upserts.transactions: 2}
        clients: list[Client] = [*writers, *readers, upserts.reader]
        for client in clients:
            client.start()
        # A forgotten group ends its members with an error.
        members = Members(at.addresses, plain) if promise != FORGETS else None
        others = {
            name: Program([*words, at.addresses, plain]) for name, words in (programs or {}).items()
        }
        assert until(lambda: _have_done(writers, Counter()), PATIENCE_S), clients
        assert until(lambda: all(other.found for other in others.values()), PATIENCE_S), [
            (name, len(other.found), other.noticed) for name, other in others.items()
        ]
        # Of what was before the next 2 s, nothing is lost: the topics, and the groups.
        assert members is None or until(members.have_read, PATIENCE_S)
        assert until(lambda: "partition compacted" in at.log, PATIENCE_S)
        assert not is_tiered or until(lambda: at.has_segments, PATIENCE_S)
        time.sleep(2.1 + at.random.random())
        if promise == FORGETS:
            transactions.forget_last()
            upserts.transactions.forget_last()
        row.inject(at)
        before = Counter({writer: writer.done for writer in writers})
        resumed = until(lambda: _have_done(writers, before), PATIENCE_S)
        for client in writers:
            client.stop()
        ends = (
            stored(at.addresses, plain, "read_uncommitted"),
            stored(at.addresses, grouped, "read_committed"),
        )
        for reader, end in zip(readers, ends, strict=True):
            until(lambda reader=reader, end=end: end[-1:] == reader.found[-1:], 20)  # type: ignore[misc]
            reader.stop()
        outcome = _judged(sink, transactions, readers, ends, promise)
        outcome.anomalies += _offsets(sink, readers, ends, promise, row.has_witness)
        outcome.anomalies += upserts.judged(promise, has_table=has_table)
        if members is not None:
            outcome.anomalies += members.judged(ends[0], promise)
        for name, other in others.items():
            outcome.anomalies += _silence(name, other, sink, ends[0])
        outcome.anomalies += _of_brokers(at, clients if row.is_planned else [])
        if not resumed:
            outcome.anomalies.append(
                f"a producer does not continue: {[writer.errors[-2:] for writer in writers]}"
            )
        if outcome.lost and promise == LOSES and row.has_witness and "records lost" not in at.log:
            outcome.anomalies.append("no broker has reported the loss")
        if outcome.anomalies:
            raised = at.log.count("leader epoch raised")
            outcome.anomalies.append(f"brokers raised the epoch {raised} times")
        return outcome


def report(fault: str, setting: str, seed: int, programs: Mapping[str, Sequence[str]]) -> Outcome:
    """Run a fault with the seed's kind of topics, and print the outcome."""
    mode, form = SHAPES[seed % len(SHAPES)]
    is_tiered = seed // len(SHAPES) % 2 == 1
    with TemporaryDirectory(prefix="kf-") as folder:
        outcome = run(Path(folder), fault, setting, mode, form, seed, programs, is_tiered=is_tiered)
    topics = f"{mode} {form}{' tiered' * is_tiered}"
    sys.stdout.write(f"{fault} | {setting} | {topics} | seed {seed} | {outcome}\n")
    sys.stdout.flush()
    return outcome


def _have_done(writers: Mapping[Idempotent | Transactions, int], before: Counter[Client]) -> bool:
    return all(writer.done >= before[writer] + count for writer, count in writers.items())


class Upserts:
    """Two producers and a consumer of a compacted topic with few keys, and with a table."""

    def __init__(self, at: World[Any], configs: Mapping[str, str], seed: int) -> None:
        self._redis = at.redis.url
        self._addresses = at.addresses
        self.topic = create_topic(at.addresses, **configs, **COMPACTED)
        self.plain = Idempotent(at.addresses, self.topic, seed, SLOW_S)
        self.transactions = Transactions(at.addresses, self.topic, seed + 1, SLOW_S)
        self.reader = Reader(at.addresses, self.topic, seed)

    def judged(self, promise: str, *, has_table: bool) -> list[str]:
        """End the consumer. Return what is missing or wrong in the log and in the table."""
        acknowledged = [row[:2] for row in self.plain.acknowledged] + self.transactions.acknowledged
        kept, found = acknowledged if promise in (KEEPS, ACKED) else [], list[str]()
        last = max((offset or 0 for offset, _ in kept), default=0)
        end: list[tuple[int, bytes]] = []

        def is_read() -> bool:
            # What a producer has left open ends by its timeout.
            end[:] = stored(self._addresses, self.topic, "read_committed")
            return end != [] and end[-1:] == self.reader.found[-1:] and end[-1][0] >= last

        until(is_read, 20)
        self.reader.stop()
        newest = {key_of(value): offset for offset, value in end}
        read = [] if self.reader.noticed else self.reader.found
        for what, rows in (("acknowledged", kept), ("read", read)):
            older = {
                key_of(value)
                for offset, value in rows
                if (offset or 0) > newest.get(key_of(value), -1)
            }
            if older:
                found.append(f"{len(older)} keys have an older value than one that was {what}")
        aborted = self.transactions.aborted({value for _, value in [*end, *self.reader.found]})
        if aborted:
            found.append(f"the compacted topic has aborted records: {sorted(aborted)[:3]}")
        if promise != FORGETS and has_table:
            found += self._table()
        return found

    def _table(self) -> list[str]:
        """Compare the table with the log."""
        with redirect_stdout(io.StringIO()) as printed:
            code = cli.run(["tables", "verify", self.topic, "--redis", self._redis, "--no-header"])
        columns = printed.getvalue().split()
        is_equal = code == 0 and columns[0] == "0" and columns[2:] == ["0", "0"]
        return [] if is_equal else [f"partition, equal, wrong, not in the log: {columns}"]


class Members:
    """A member of a group of each protocol, and of a share group, which read the plain topic."""

    def __init__(self, addresses: str, topic: str) -> None:
        # The shortest one: after it, what a killed broker has delivered is delivered again.
        configure_group(addresses, "share", share_record_lock_duration_ms="15000")
        self.tally = Tally()
        self.share = ShareMember(addresses, "share", topic, self.tally)
        quick = {"enable_auto_commit": True, "auto_commit_interval_ms": 200}
        self.groups = {
            protocol: Member(addresses, protocol, topic, group_protocol=protocol, **quick)
            for protocol in ("classic", "consumer")
        }

    def have_read(self) -> bool:
        return all([self.tally.accepted, *(member.seen for member in self.groups.values())])

    def judged(self, plain: list[tuple[int, bytes]], promise: str) -> list[str]:
        """End the members; return what they have not read, or were given twice."""
        places, values = {(0, offset) for offset, _ in plain}, {value for _, value in plain}
        unread: dict[str, Callable[[], set[Any]]] = {
            "share": lambda: values - set(self.tally.delivered),
            "classic": lambda: places - set(self.groups["classic"].seen),
            "consumer": lambda: places - set(self.groups["consumer"].seen),
        }
        until(lambda: not any(left() for left in unread.values()), PATIENCE_S)
        self.share.stop()
        for member in self.groups.values():
            member.leave()
        found = [f"group {name}: {len(left())} unread" for name, left in unread.items() if left()]
        if promise == KEEPS and self.tally.again:
            found.append(f"{len(self.tally.again)} accepted records were delivered again")
        return found


def _of_brokers(at: World[Any], quiet: list[Client]) -> list[str]:
    """Return errors of the clients that may have none, and what is wrong at the brokers."""
    found = [error for client in quiet for error in client.errors]
    if "Traceback" in at.log:
        found.append(at.log[at.log.index("Traceback") :][:2000])
    return found


def _silence(
    name: str, other: Program, sink: Idempotent, plain: list[tuple[int, bytes]]
) -> list[str]:
    """End another client's consumer; return what it has missed or lost without an error."""
    there = {value for _, value in plain}
    until(lambda: other.noticed or not there - other.found, 20)
    other.stop()
    lost = {value for _, value, _ in sink.acknowledged} - there
    missed = len(there - other.found), len(lost & other.found)
    if other.noticed or missed == (0, 0):
        return []
    return [f"{name} gets no error: %d records unread, %d that it has read are lost" % missed]


def _judged(
    sink: Idempotent,
    transactions: Transactions,
    readers: Iterable[Reader],
    ends: tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]],
    promise: str,
) -> Outcome:
    plain, grouped = ends
    there = Counter(value for _, value in plain)
    lost = [row for row in sink.acknowledged if row[1] not in there]
    reader, committed_reader = readers
    missed = {value for _, value, _ in lost} & {value for _, value in reader.found}
    noticed = bool(reader.noticed)
    anomalies = [f"{value!r} is there {count} times" for value, count in there.items() if count > 1]
    values = [value for _, value in plain]
    if values != sorted(values):
        anomalies.append("records are not in the order of sending")
    if lost and promise in (KEEPS, ACKED):
        anomalies.append(f"{len(lost)} acknowledged records are lost")
    if missed and not noticed:
        anomalies.append(
            f"{len(missed)} records are lost that a consumer has read, and it gets no error"
        )
    if noticed and promise == KEEPS:
        anomalies.append(f"a consumer gets an error without a loss: {reader.noticed}")
    unseen = set(values) - {value for _, value in reader.found}
    if unseen and not noticed:
        anomalies.append(f"{len(unseen)} records are not delivered")
    groups = Counter(value.partition(b"-")[0] for _, value in grouped)
    for name, outcome in transactions.outcomes.items():
        count = groups[name]
        if count not in (0, 5) or (outcome == "aborted" and count):
            anomalies.append(f"transaction {name!r} ({outcome}) has {count} committed records")
        if outcome == "committed" and not count and promise in (KEEPS, ACKED):
            anomalies.append(f"committed transaction {name!r} is lost")
    wrong = transactions.aborted({value for _, value in committed_reader.found})
    if wrong:
        anomalies.append(f"a consumer has read aborted records: {sorted(wrong)[:3]}")
    moments = [moment for *_, moment in lost]
    return Outcome(
        lost=len(lost),
        lost_s=round(max(moments) - min(moments), 2) if moments else 0.0,
        noticed=noticed,
        gap_s=round(longest_gap([moment for *_, moment in sink.acknowledged]), 2),
        anomalies=anomalies,
    )


def _offsets(
    sink: Idempotent,
    readers: tuple[Reader, Reader],
    ends: tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]],
    promise: str,
    has_witness: bool,
) -> list[str]:
    """Return offsets that two records have had. Not of a topic that was created again."""
    if promise == FORGETS or not has_witness:
        return []
    given: dict[int, set[bytes]] = defaultdict(set)
    for offset, value, _ in sink.acknowledged:
        # After DUPLICATE_SEQUENCE_NUMBER librdkafka has no offset.
        if offset is not None:
            given[offset].add(value)
    for offset, value in [*readers[0].found, *ends[0]]:
        given[offset].add(value)
    reused = {offset: values for offset, values in given.items() if len(values) > 1}
    return [f"offsets were given twice: {sorted(reused.items())[:2]}"] if reused else []
