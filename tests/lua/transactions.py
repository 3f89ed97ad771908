"""Producers, partitions and readers of transactions, for the tests of lua/transaction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from korvet.base.errors import ErrorCode
from korvet.scripts.calls.partition import AbortHangingTxnReply, AppendReply, WriteTxnMarkerReply
from korvet.scripts.calls.transaction import (
    AddPartitionsReply,
    DescribeReply,
    EndReply,
    ExpireReply,
    InitReply,
)
from korvet.scripts.keys import Keys
from korvet.wire import control_records
from tests.support.store_runners import Runner

KEYS = Keys()
ID = "0123456789abcdef0123456789abcdef"
TIMEOUT_MS = 60_000
FOREVER_MS = 10**12


@dataclass
class Logs:
    """Partitions of topic `t`, layout `record`, that transactions write to."""

    runner: Runner
    partitions: int = 2
    mode: str = "dense"

    def create(self) -> "Logs":
        """Create the topic."""
        reply = self.runner.run(
            KEYS.topic_create(
                KEYS.logs("t", range(self.partitions)),
                topic="t",
                definition=b"{}",
                topic_id=ID,
                format="record",
                mode=self.mode,
                bits=10,
            )
        )
        assert reply.error == 0
        return self

    def append(
        self,
        partition: int,
        value: bytes,
        producer: tuple[int, int, int] = (-1, -1, -1),
        number: int = -1,
    ) -> AppendReply:
        """Append one record; `number` is the transaction's, as in log.append."""
        mark = [b"transaction", b"%d" % producer[0]] if number >= 0 else []
        fields: list[Any] = [*mark, b"value", value]
        return self.runner.run(
            KEYS.partition("t", partition, ID).append(
                count=1,
                size=10,
                max_timestamp=self.runner.now_ms(),
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=producer[2],
                transaction=number,
                fields=[len(fields), *fields],
            )
        )

    def begin(self, partition: int, producer: int, epoch: int, number: int) -> ErrorCode:
        """Begin a transaction in the partition."""
        call = KEYS.partition("t", partition, ID).begin_txn(
            producer_id=producer, producer_epoch=epoch, transaction=number
        )
        return ErrorCode(self.runner.run(call).error)

    def mark(
        self, partition: int, producer: int, epoch: int, number: int, committed: bool
    ) -> WriteTxnMarkerReply:
        """End a transaction in the partition."""
        fields = control_records.fields_of(self.runner.now_ms(), producer, epoch, committed)
        return self.runner.run(
            KEYS.partition("t", partition, ID).write_txn_marker(
                producer_id=producer,
                producer_epoch=epoch,
                transaction=number,
                committed=int(committed),
                size=10,
                fields=fields,
            )
        )

    def close(self, producer: int, epoch: int, number: int, **changes: int) -> AbortHangingTxnReply:
        """End the transaction in partition 0, without its transactional id."""
        words = {"coordinator_epoch": 0, "raised": 0, "committed": 0, **changes}
        committed = bool(words["committed"])
        return self.runner.run(
            KEYS.partition("t", 0, ID).abort_hanging_txn(
                producer_id=producer,
                producer_epoch=epoch,
                transaction=number,
                size=10,
                fields=control_records.fields_of(self.runner.now_ms(), producer, epoch, committed),
                **words,
            )
        )

    def stable(self, partition: int) -> int:
        """Return the last stable offset."""
        return self.runner.run(KEYS.partition("t", partition, ID).list_offsets()).stable

    def entries(self, partition: int) -> list[tuple[int, list[bytes]]]:
        """Return offset and fields of every entry, markers included."""
        rows: Any = self.runner.command("XRANGE", KEYS.partition("t", partition).stream, "-", "+")
        found = []
        for raw, fields in rows:
            milliseconds, sequence = map(int, raw.split(b"-"))
            offset = sequence if self.mode == "dense" else (milliseconds << 10) + sequence
            if isinstance(fields, dict):
                fields = [word for pair in fields.items() for word in pair]
            found.append((offset, list(fields)))
        return found

    def aborted(self, partition: int) -> list[tuple[int, int, int]]:
        """Return producer, first offset and marker of every aborted transaction."""
        flat: Any = self.runner.command(
            "ZRANGE", KEYS.partition("t", partition).aborted_txns, 0, -1, "WITHSCORES"
        )
        pairs = (
            flat
            if flat and isinstance(flat[0], list | tuple)
            else list(zip(flat[::2], flat[1::2], strict=True))
        )
        rows = []
        for member, score in pairs:
            producer, first, _ = map(int, member.split(b":"))
            rows.append((producer, first, int(score)))
        return rows

    def committed(self, partition: int) -> list[bytes]:
        """Return the read_committed values, by the client's rule: markers and aborted list."""
        stable, aborted = self.stable(partition), self.aborted(partition)
        found = []
        for offset, fields in self.entries(partition):
            if offset >= stable or control_records.is_marker(fields):
                continue
            producer = control_records.producer_of(fields)
            if any(who == producer and at <= offset <= end for who, at, end in aborted):
                continue
            found.append(fields[fields.index(b"value") + 1])
        return found

    def everything(self, partition: int) -> list[bytes]:
        """Return the read_uncommitted values."""
        return [
            fields[fields.index(b"value") + 1]
            for _, fields in self.entries(partition)
            if not control_records.is_marker(fields)
        ]


class History:
    """Writes, decisions, values read so far with read_committed, and requests still in flight."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.values: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        self.plain: list[tuple[int, bytes]] = []
        self.decided: dict[tuple[str, int], bool] = {}
        self.seen: dict[int, list[bytes]] = {number: [] for number in range(logs.partitions)}
        self.late: list[Callable[[], Any]] = []

    def wrote(self, transaction: tuple[str, int], partition: int, value: bytes) -> None:
        """Note that the transaction, an id and its number, has the value there."""
        self.values.setdefault(transaction, []).append((partition, value))

    def committed(self, partition: int) -> set[bytes]:
        """Return the values that a read_committed client should get."""
        ended = [rows for key, rows in self.values.items() if self.decided.get(key)]
        return {value for rows in [self.plain, *ended] for at, value in rows if at == partition}

    def check(self) -> None:
        """Check that nothing else is read, nothing twice, and that read values stay."""
        for number, seen in self.seen.items():
            found = self.logs.committed(number)
            assert found[: len(seen)] == seen
            assert set(found) <= self.committed(number)
            assert len(set(found)) == len(found)
            self.seen[number] = found

    def ended(self) -> None:
        """Check that all committed values are read, and that nothing is open."""
        for number in self.seen:
            assert set(self.logs.committed(number)) == self.committed(number)
            assert self.logs.stable(number) == self.logs.entries(number)[-1][0] + 1


@dataclass
class Coordinator:
    """Any broker: it runs the scripts of a transactional id and carries out their decisions."""

    logs: Logs
    name: str = "tx"
    fresh: list[int] = field(default_factory=lambda: list(range(1000, 0, -1)))

    @property
    def runner(self) -> Runner:
        """The runner of the scripts."""
        return self.logs.runner

    def init(self, producer: int = -1, epoch: int = -1) -> InitReply:
        """Send an InitProducerId, with a fresh id if the reply requires one."""
        fresh = -1
        while True:
            reply = self.runner.run(
                KEYS.transaction(self.name).init(
                    timeout_ms=TIMEOUT_MS,
                    producer_id=producer,
                    producer_epoch=epoch,
                    fresh_id=fresh,
                )
            )
            if not reply.fresh:
                return reply
            fresh = self.fresh.pop()

    def add(self, producer: int, epoch: int, partitions: Sequence[int]) -> AddPartitionsReply:
        """Add the partitions to the transaction."""
        members = [f"p:t:{partition}" for partition in partitions]
        return self.runner.run(
            KEYS.transaction(self.name).add_partitions(
                producer_id=producer, producer_epoch=epoch, members=members
            )
        )

    def finish(
        self, producer: int, epoch: int, committed: bool, bump: bool, number: int = -1
    ) -> EndReply:
        """Decide the end of the transaction of that number, -1 for any, and no more."""
        fresh = -1
        while True:
            reply = self.runner.run(
                KEYS.transaction(self.name).end(
                    producer_id=producer,
                    producer_epoch=epoch,
                    committed=int(committed),
                    bump=int(bump),
                    fresh_id=fresh,
                    number=number,
                )
            )
            if not reply.fresh:
                return reply
            fresh = self.fresh.pop()

    def look(self, completion_timeout_ms: int = 0) -> ExpireReply:
        """Check the id for an expired deadline."""
        return self.runner.run(
            KEYS.transaction(self.name).expire(
                forget_ms=FOREVER_MS, completion_timeout_ms=completion_timeout_ms
            )
        )

    def steps(self, reply: EndReply | ExpireReply, committed: bool) -> list[Any]:
        """Return the steps after a decision, each a function; any may be repeated."""
        partitions = sorted(int(member.rpartition(b":")[2]) for member in reply.members)
        marks = [
            lambda partition=partition: self.logs.mark(
                partition, reply.marker_id, reply.marker_epoch, reply.transaction, committed
            )
            for partition in partitions
        ]
        complete = KEYS.transaction(self.name).complete(transaction=reply.transaction)
        return [*marks, lambda: self.runner.run(complete)]

    def view(self) -> DescribeReply:
        """Return the description of the transactional id."""
        return self.runner.run(KEYS.transaction(self.name).describe())

    def settle(self) -> None:
        """Carry out a pending decision."""
        reply = self.look()
        if reply.pending:
            for step in self.steps(reply, bool(reply.committed)):
                step()
