"""Check fetches of copied records that Redis has too: repeated ones take the fast path."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from korvet.base.errors import ErrorCode
from korvet.testing import Broker
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.broker.test_fetches_from_segments import (
    BATCHES,
    MAX_BYTES,
    TOPIC,
    known,
    lasting,
    made,
    next_offset,
)
from tests.support.raw_client import Peer, to_produce, until

__all__ = ["known", "lasting"]
LATEST, LATEST_COPIED = -1, -5


class Copies:
    """A broker with a copied topic, all of whose records Redis has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = Broker(
            settings={
                "remote.log.storage.system.enable": "true",
                "remote.log.manager.task.interval.ms": "100",
                "remote.storage.url": f"file://{folder}",
                "fetch.cache.bytes": "0",
            }
        )
        self.topic_id = UUID(int=0)
        self.session = 0, -1

    def fill(self, mode: str) -> list[bytes]:
        """Write batches of 40 KB, read them from Redis, and wait until they are copied."""
        self.broker.start()
        configs = {**TOPIC, "offset.mode": mode, "local.retention.ms": "-1"}
        self.topic_id = UUID(hex=self.broker.log.create_topic("t", 1, configs).id)
        with Peer(self.broker.bootstrap_servers) as peer:
            for number in range(BATCHES):
                answer = peer.ask("Produce", 12, to_produce("t", made(number))).responses[0]
                assert answer.partition_responses[0].error_code == 0
            found = self.read(peer)
            end = self.offset(peer, LATEST)
            assert until(lambda: self.offset(peer, LATEST_COPIED) == end - 1), "not copied"
        return found

    def offset(self, peer: Peer, timestamp: int) -> int:
        row = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topics = [ListOffsetsTopic(name="t", partitions=[row])]
        asked = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=1000)
        return int(peer.ask("ListOffsets", 9, asked).topics[0].partitions[0].offset)

    def fetch(self, peer: Peer, offset: int, committed: bool = False) -> Any:
        row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
        body = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=50 << 20,
            isolation_level=int(committed),
            session_id=self.session[0],
            session_epoch=self.session[1],
            topics=[FetchTopic(topic="t", topic_id=self.topic_id, partitions=[row])],
        )
        answer = peer.ask("Fetch", 11, body)
        assert answer.error_code == 0
        if self.session[1] >= 0:
            self.session = answer.session_id, self.session[1] + 1
            assert answer.session_id
        if not answer.responses:  # nothing new in the session
            return replace(self.last, records=b"")
        self.last = answer.responses[0].partitions[0]
        return self.last

    def read(self, peer: Peer, offset: int = 0, committed: bool = False) -> list[bytes]:
        """Return the stored batches from an offset on."""
        found: list[bytes] = []
        while True:
            row = self.fetch(peer, offset, committed)
            assert row.error_code == 0
            data = bytes(row.records or b"")
            if not data:
                assert row.high_watermark == row.last_stable_offset == offset
                return found
            offset = next_offset(data)
            while data:
                size = 12 + int.from_bytes(data[8:12], "big")
                found.append(data[:size])
                data = data[size:]


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copies]:
    monkeypatch.setattr("korvet.remote_log.reader.PREPARE_S", 0.0)
    copies = Copies(tmp_path)
    try:
        yield copies
    finally:
        copies.broker.close()


@pytest.mark.parametrize(
    ("mode", "epoch"), [("time", -1), ("dense", -1), ("time", 0)], ids=["time", "dense", "session"]
)
@pytest.mark.usefixtures("lasting")
def test_repeated_fetches_get_what_redis_has(
    copies: Copies, known: list[bool], mode: str, epoch: int
) -> None:
    there = copies.fill(mode)
    assert len(there) == BATCHES
    copies.session = 0, epoch
    with Peer(copies.broker.bootstrap_servers) as peer:
        for committed in (False, True):
            for _ in range(3):
                assert copies.read(peer, committed=committed) == there
        assert known.count(True) >= 4
        for path in copies.folder.rglob("*.segment"):
            path.unlink()
        for committed in (False, True):
            assert copies.read(peer, committed=committed) == there


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_deleted_records_are_out_of_range_at_once(
    copies: Copies, known: list[bool], mode: str
) -> None:
    there = copies.fill(mode)
    offsets = [next_offset(batch) for batch in there]
    with Peer(copies.broker.bootstrap_servers) as peer:
        copies.read(peer)
        for number in range(3):
            start = offsets[number]
            row = copies.fetch(peer, start)
            assert bytes(row.records).startswith(there[number + 1])
            rows = [DeleteRecordsPartition(partition_index=0, offset=start + 1)]
            topics = [DeleteRecordsTopic(name="t", partitions=rows)]
            asked = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
            assert peer.ask("DeleteRecords", 2, asked).topics[0].partitions[0].error_code == 0
            assert copies.fetch(peer, start).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert copies.read(peer, offsets[5]) == there[6:]
