"""Load two brokers on one Redis while one after the other is stopped; report what went wrong.

`python -m tests.broker.stall_load --seeds 20 --seconds 60 --longest 15` is the long form.

- Each client repeats a request at the other broker if it has no response after PATIENCE_S. It
  closes the connection, or keeps it open until the end, as if the network held its end back.
- `--late`: the last byte of some requests reaches the first broker only after the client had its
  response from the other one.
- `--full`: Redis is at `maxmemory` for some seconds.
- `--clock`: Redis's clock is set back by minutes (needs libfaketime).
"""

import argparse
import os
import random
import signal
import struct
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from korvet.base.errors import ErrorCode
from korvet.wire import batch_builder
from korvet.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.end_txn import EndTxnRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopics
from korvet.wire.messages.produce import ProduceRequest
from korvet.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from korvet.wire.messages.share_fetch import ShareFetchRequest
from korvet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from korvet.wire.records import read_header, records_of
from korvet.wire.structs import NamedPartitions
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.support.raw_client import Peer, frame, request, to_fetch, to_produce
from tests.support.redis_servers import TestServer, server
from tests.support.shared_broker import started
from tests.support.wire_client import batches_in

PATIENCE_S = 2.0
PAUSE_S = 0.05
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
LATE = {("Produce", 9), ("Produce", 12), ("EndTxn", 5), ("ShareFetch", 1), ("ShareAcknowledge", 1)}
"""Requests whose numbers fence a late one. EndTxn 3 has none, here as in Kafka (KIP-890)."""
Failures = (OSError, EOFError, struct.error)


class Client:
    """A client of both brokers. `anomalies` are sentences about what must not happen."""

    def __init__(self, addresses: Sequence[str], seed: int, anomalies: list[str]) -> None:
        self.random = random.Random(seed)
        self.anomalies = anomalies
        self._addresses = list(addresses)
        self._at = self.random.randrange(len(addresses))
        self._peer: Peer | None = None
        self._held: list[Peer] = []
        self._late: list[tuple[Peer, bytes]] = []
        self.late_chance = 0.0

    def ask(self, name: str, version: int, body: Any, code_of: Callable[[Any], int]) -> Any:
        """Return the first response without a retriable error."""
        while True:
            try:
                if self._peer is None:
                    self._peer = Peer(self._addresses[self._at])
                    self._peer.socket.settimeout(PATIENCE_S)
                if (name, version) in LATE and self.random.random() < self.late_chance:
                    self._hold_back(self._peer, request(name, version, body))
                    continue
                found = self._peer.ask(name, version, body)
                self._release()
            except Failures:
                self._move()
                continue
            if not ErrorCode(code_of(found)).retriable:
                return found
            if code_of(found) == ErrorCode.NOT_COORDINATOR:
                self._move()
            time.sleep(PAUSE_S)

    def _hold_back(self, peer: Peer, content: bytes) -> None:
        """Send all but the last byte, and use the other broker."""
        data = frame(content)
        peer.socket.sendall(data[:-1])
        self._late.append((peer, data[-1:]))
        self._peer = None
        self._at = (self._at + 1) % len(self._addresses)

    def _release(self) -> None:
        """Send the bytes that were held back: their requests were repeated elsewhere."""
        while self._late:
            peer, data = self._late.pop()
            with suppress(OSError):
                peer.socket.sendall(data)
            self._held.append(peer)

    def _move(self) -> None:
        """Leave the connection, and use the other broker."""
        peer, self._peer = self._peer, None
        self._at = (self._at + 1) % len(self._addresses)
        if peer is not None and self.random.random() < 0.5:
            self._held.append(peer)
        elif peer is not None:
            peer.socket.close()
        time.sleep(PAUSE_S)

    def close(self) -> None:
        for peer in (self._peer, *self._held):
            if peer is not None:
                peer.socket.close()

    def produce(self, topic: str, data: bytes, version: int, transactional_id: str | None) -> int:
        body: ProduceRequest = structs.replace(
            to_produce(topic, data), transactional_id=transactional_id
        )
        found = self.ask(
            "Produce", version, body, lambda a: a.responses[0].partition_responses[0].error_code
        )
        code: int = found.responses[0].partition_responses[0].error_code
        return code


class Producer:
    """A producer, idempotent or transactional: EndTxn `end_version` 3 or 5, or 0 for none."""

    def __init__(self, client: Client, topic: str, end_version: int) -> None:
        self.client, self.topic, self.end_version = client, topic, end_version
        self.name = f"tx-{topic}" if end_version else None
        self.acknowledged: list[bytes] = []
        made = client.ask(
            "InitProducerId",
            4,
            InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            ),
            lambda a: a.error_code,
        )
        self.id, self.epoch, self.sequence = made.producer_id, made.producer_epoch, 0
        self.count = 0

    def step(self) -> None:
        """Produce some records, in a transaction if it is transactional."""
        if self.end_version == 3:
            self._expect("AddPartitionsToTxn", self._add())
        values = [self._send() for _ in range(self.client.random.randrange(1, 4))]
        committed = not self.end_version or self.client.random.random() < 0.7
        if self.end_version:
            self._end(committed)
        if committed:
            self.acknowledged += values

    def _send(self) -> bytes:
        value = b"%s-%d" % (self.topic.encode(), self.count)
        self.count += 1
        data = batch_builder.build(
            [(0, int(time.time() * 1000), None, value, [])],
            producer=(self.id, self.epoch, self.sequence),
            transactional=bool(self.end_version),
        )
        self.sequence += 1
        version = 12 if self.end_version == 5 else 9
        self._expect("Produce", self.client.produce(self.topic, bytes(data), version, self.name))
        return value

    def _add(self) -> int:
        def code_of(answer: Any) -> int:
            (found,) = answer.results_by_topic_v3_and_below
            code: int = found.results_by_partition[0].partition_error_code
            return code

        return code_of(
            self.client.ask(
                "AddPartitionsToTxn",
                3,
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.name or "",
                    v3_and_below_producer_id=self.id,
                    v3_and_below_producer_epoch=self.epoch,
                    v3_and_below_topics=[NamedPartitions(name=self.topic, partitions=[0])],
                ),
                code_of,
            )
        )

    def _end(self, committed: bool) -> None:
        found = self.client.ask(
            "EndTxn",
            self.end_version,
            EndTxnRequest(
                transactional_id=self.name or "",
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=committed,
            ),
            lambda a: a.error_code,
        )
        self._expect("EndTxn", found.error_code)
        if self.end_version == 5:
            self.id, self.epoch, self.sequence = found.producer_id, found.producer_epoch, 0

    def _expect(self, what: str, code: int) -> None:
        if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.client.anomalies.append(f"{what} of {self.topic}: {ErrorCode(code).name}")

    def check(self) -> None:
        """Compare the committed records with the acknowledged ones."""
        found = committed_values(self.client, self.topic)
        if found != self.acknowledged:
            lost, more = set(self.acknowledged) - set(found), set(found) - set(self.acknowledged)
            self.client.anomalies.append(
                f"{self.topic}: {len(lost)} lost, {len(more)} not committed, "
                f"{len(found) - len(set(found))} twice, of {len(self.acknowledged)}"
            )


class Committer:
    """A consumer that commits growing offsets: without a group, or as a member (KIP-848)."""

    def __init__(self, client: Client, topic: str, *, is_member: bool) -> None:
        self.client, self.topic, self.is_member = client, topic, is_member
        self.group, self.member, self.epoch = f"g-{topic}", uuid.uuid4().hex, -1
        self.offset = 0

    @property
    def count(self) -> int:
        return self.offset

    def step(self) -> None:
        """Commit the next offset, and check that it is the committed one."""
        if self.is_member:
            self._heartbeat()
        self.offset += 1
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.offset, committed_metadata=""
        )
        body = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member if self.is_member else "",
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[row])],
        )
        found = self.client.ask(
            "OffsetCommit", 9, body, lambda a: a.topics[0].partitions[0].error_code
        )
        if found.topics[0].partitions[0].error_code != ErrorCode.NONE:
            self.epoch, self.offset = 0 if self.is_member else -1, self.offset - 1
            return
        self.check()
        time.sleep(PAUSE_S)

    def _heartbeat(self) -> None:
        joins = self.epoch <= 0
        found = self.client.ask(
            "ConsumerGroupHeartbeat",
            0,
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id="" if joins else self.member,
                member_epoch=0 if joins else self.epoch,
                rebalance_timeout_ms=60_000 if joins else -1,
                subscribed_topic_names=[self.topic] if joins else None,
                topic_partitions=[] if joins else None,
            ),
            lambda a: a.error_code,
        )
        if found.error_code:
            self.epoch = 0
            return self._heartbeat()
        self.member, self.epoch = found.member_id, found.member_epoch

    def check(self) -> None:
        """Compare the committed offset with the one that was acknowledged last."""
        body = OffsetFetchRequest(
            group_id=self.group,
            topics=[OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])],
        )
        found = self.client.ask("OffsetFetch", 5, body, lambda a: a.error_code)
        now = found.topics[0].partitions[0].committed_offset
        if now != self.offset and self.offset:
            self.client.anomalies.append(f"{self.group}: committed {self.offset}, found {now}")
            self.offset = now


class ShareMember:
    """A member of a share group that accepts each record it gets, and produces some."""

    def __init__(self, client: Client, topic: str) -> None:
        self.client, self.topic, self.member = client, topic, uuid.uuid4().hex
        self.producer = Producer(client, topic, 0)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        found = client.ask("Metadata", 12, asked, lambda a: a.topics[0].error_code)
        self.topic_id = found.topics[0].topic_id
        self.member_epoch = self.session_epoch = 0
        self.accepted: set[int] = set()

    @property
    def count(self) -> int:
        return len(self.accepted)

    def step(self) -> None:
        """Produce, then accept what the group gets."""
        self._heartbeat()
        self.producer.step()
        body = ShareFetchRequest(
            group_id=f"s-{self.topic}",
            member_id=self.member,
            share_session_epoch=self.session_epoch,
            max_wait_ms=100,
            min_bytes=1,
            max_records=100,
            batch_size=100,
            topics=self._topics([]),
        )
        found = self._in_session("ShareFetch", body)
        for topic in found.responses if found is not None else []:
            for row in topic.partitions:
                for some in row.acquired_records:
                    self._accept(some.first_offset, some.last_offset)

    def _accept(self, first: int, last: int) -> None:
        again = self.accepted.intersection(range(first, last + 1))
        if again:
            self.client.anomalies.append(f"{self.topic}: accepted and delivered again: {again}")
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1])
        ]
        body = ShareAcknowledgeRequest(
            group_id=f"s-{self.topic}",
            member_id=self.member,
            share_session_epoch=self.session_epoch,
            topics=self._topics(batches),
        )
        found = self._in_session("ShareAcknowledge", body)
        if found is not None and not found.responses[0].partitions[0].error_code:
            self.accepted.update(range(first, last + 1))

    def _topics(self, batches: list[AcknowledgementBatch]) -> list[AcknowledgeTopic]:
        row = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        return [AcknowledgeTopic(topic_id=self.topic_id, partitions=[row])]

    def _in_session(self, name: str, body: Any) -> Any:
        """Return the response; None if the session is unknown, which the next fetch opens."""
        found = self.client.ask(name, 1, body, lambda a: 0)
        self.session_epoch = 0 if found.error_code else self.session_epoch + 1
        return None if found.error_code else found

    def _heartbeat(self) -> None:
        asked = ShareGroupHeartbeatRequest(
            group_id=f"s-{self.topic}",
            member_id=self.member,
            member_epoch=self.member_epoch,
            subscribed_topic_names=None if self.member_epoch else [self.topic],
        )
        found = self.client.ask("ShareGroupHeartbeat", 1, asked, lambda a: a.error_code)
        self.member_epoch = 0 if found.error_code else found.member_epoch

    def check(self) -> None:
        """Compare the records that were produced with the acknowledged ones."""
        self.producer.check()


def committed_values(client: Client, topic: str) -> list[bytes]:
    """Return the values that a consumer with read_committed gets, in order."""
    values: list[bytes] = []
    offset = 0
    while True:
        body = structs.replace(to_fetch(topic, offset), isolation_level=1)
        answer = client.ask("Fetch", 11, body, lambda a: a.responses[0].partitions[0].error_code)
        row = answer.responses[0].partitions[0]
        batches = list(batches_in(bytes(row.records or b"")))
        if not batches:
            return values
        aborted = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions)
        open_aborts: set[int] = set()
        for data in batches:
            header = read_header(data)
            offset = header.base_offset + header.last_offset_delta + 1
            while aborted and aborted[0][0] <= header.base_offset:
                open_aborts.add(aborted.pop(0)[1])
            if header.attributes & 0x20:
                open_aborts.discard(header.producer_id)
            elif header.producer_id not in open_aborts:
                values += [bytes(record[3] or b"") for record in records_of(data)]


Worker = Producer | Committer | ShareMember
KINDS: tuple[Callable[[Client, str], Worker], ...] = (
    lambda client, topic: Producer(client, topic, 0),
    lambda client, topic: Producer(client, topic, 3),
    lambda client, topic: Producer(client, topic, 3),
    lambda client, topic: Producer(client, topic, 5),
    lambda client, topic: Committer(client, topic, is_member=False),
    lambda client, topic: Committer(client, topic, is_member=True),
    ShareMember,
)


def _work(worker: Worker, stop: threading.Event) -> None:
    try:
        while not stop.is_set():
            worker.step()
    except Exception as error:
        worker.client.anomalies.append(f"{type(worker).__name__} ended: {error!r}")


@dataclass(frozen=True)
class Load:
    """Disturbances of the brokers and Redis; times in seconds."""

    seconds: float
    longest: float
    late: bool = False
    full: bool = False
    clock: bool = False

    def run(self, seed: int, folder: Path) -> list[str]:
        """Run the load once; return the anomalies."""
        chance, anomalies = random.Random(seed), list[str]()
        mode, layout = ("time", "dense")[seed % 2], ("record", "batch")[seed // 2 % 2]
        with ExitStack() as stack:
            offset = folder / f"{seed}-clock"
            redis = stack.enter_context(self._server(offset))
            brokers = [
                started(folder / f"{seed}-{number}", redis.url, connections_max_stall_ms="1000")
                for number in range(2)
            ]
            for broker in brokers:
                stack.callback(broker.close)
            addresses = [broker.address for broker in brokers]
            workers: list[Worker] = []
            for number, kind in enumerate(KINDS):
                topic = create_topic(addresses[0], offset_mode=mode, storage_format=layout)
                workers.append(kind(Client(addresses, seed * 100 + number, anomalies), topic))
                workers[-1].client.late_chance = 0.02 if self.late else 0.0
            stop = threading.Event()
            threads = [threading.Thread(target=_work, args=(each, stop)) for each in workers]
            for thread in threads:
                thread.start()
            self._disturb(brokers, redis, chance, offset)
            stop.set()
            for thread in threads:
                thread.join()
            for worker in workers:
                worker.check()
                worker.client.close()
        stalls = sum(broker.log.count("connections closed after a stall") for broker in brokers)
        anomalies += [f"broker: {line}" for each in brokers for line in _tracebacks(each)]
        counts = ", ".join(f"{type(each).__name__} {each.count}" for each in workers)
        say(f"seed {seed}: {counts}; {stalls} stalls, {len(anomalies)} anomalies")
        return anomalies

    @contextmanager
    def _server(self, offset: Path) -> Iterator[TestServer]:
        """Run Redis; with `clock` its time is that of the machine and what `offset` has."""
        if not self.clock:
            with server("valkey") as running:
                yield running
            return
        offset.write_text("+0")
        faked = {
            "LD_PRELOAD": FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": str(offset),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in faked.items():
                patch.setenv(name, value)
            starting = server("valkey")
            running = starting.__enter__()
        with ExitStack() as stack:
            stack.push(starting)
            yield running

    def _disturb(
        self, brokers: Sequence[Broker], redis: TestServer, chance: random.Random, offset: Path
    ) -> None:
        """Stop a broker, fill Redis or set its clock back, one after the other."""
        ends, set_back = time.monotonic() + self.seconds, 0
        kinds = ["pause", *(["full"] if self.full else []), *(["clock"] if self.clock else [])]
        with redis.client() as client:
            while time.monotonic() < ends:
                kind = chance.choice(kinds)
                if kind == "pause":
                    pid = chance.choice(brokers).pid
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(chance.uniform(1.0, self.longest))
                    os.kill(pid, signal.SIGCONT)
                elif kind == "full":
                    used = client.info("memory")["used_memory"]
                    client.config_set("maxmemory", used)
                    time.sleep(chance.uniform(0.5, 3.0))
                    client.config_set("maxmemory", 0)
                else:
                    set_back += chance.randrange(60, 600)
                    offset.write_text(f"-{set_back}")
                time.sleep(chance.uniform(0.2, 1.5))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _tracebacks(broker: Broker) -> list[str]:
    return [text for text in broker.log.split("time=") if "Traceback" in text]


def main() -> None:
    """Run the seeds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--longest", type=float, default=15)
    for name in ("late", "full", "clock"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    load = Load(options.seconds, options.longest, options.late, options.full, options.clock)
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + options.seeds):
            anomalies = load.run(seed, Path(folder))
            found += len(anomalies)
            for each in anomalies:
                say(f"  {each}")
    say(f"{found} anomalies in {options.seeds} seeds")


if __name__ == "__main__":
    main()
