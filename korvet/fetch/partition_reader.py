"""Read one partition for a Fetch: its records, its offsets, or the error.

A client that is a member of a Redis group (`group.read.mode=stream`) reads what XREADGROUP
delivers to it; every other client reads the log from its fetch offset.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import msgspec

from korvet.base import logfmt
from korvet.base.errors import TOPIC_GONE, ErrorCode
from korvet.fetch.record_format import BATCHES_SINCE, ZSTD_SINCE, encode_records
from korvet.groups.offsets_view import OffsetsView
from korvet.groups.stream_reads import StreamReads
from korvet.log.entry import Entry
from korvet.log.layouts import layout_of
from korvet.log.leader_epochs import LeaderEpochs, end_of, is_lost, parse_rows
from korvet.log.opening import in_thread
from korvet.log.read_result import ReadRequest, ReadResult
from korvet.log.reader import LogReader
from korvet.store.errors import StoreError
from korvet.topics.node import Node
from korvet.topics.table import Topic
from korvet.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    PartitionData,
)
from korvet.wire.records import BadBatch, Buffer

MAX_BYTES = 512 << 20
"""Bytes of the process's responses above which one is limited to MIN_RESPONSE_BYTES."""
MIN_RESPONSE_BYTES = 1 << 20
READ_COMMITTED = 1
TOPIC_IDS_SINCE = 13
"""The first version of Fetch that names topics by their ids."""
GROWTH = ("topic_id", "start", "bytes")
Encoded: TypeAlias = tuple[ErrorCode, list[Buffer]]
logger = logfmt.get("fetch.partition_reader")


class ResponseMemory:
    """The bytes of responses that are being read, or that clients have not received yet."""

    def __init__(self) -> None:
        self.bytes = 0

    @property
    def available(self) -> int:
        """Bytes the next response may have."""
        return max(MAX_BYTES - self.bytes, MIN_RESPONSE_BYTES)


class FetchParams(msgspec.Struct, frozen=True):
    """Limits and isolation of a Fetch, for all its partitions."""

    version: int
    client_id: str | None
    min_bytes: int
    max_bytes: int
    committed: bool


class PartitionFetch(msgspec.Struct):
    """A partition of a Fetch, and its response once it is read."""

    topic: Topic
    request: FetchPartition
    response: PartitionData | None = None
    records: int = 0
    size: int = 0
    """Bytes of records in the response, or in the one that was dropped."""
    appended: int = 0
    """Bytes ever appended to the log when it was read."""
    grown: int = 0
    """Estimated bytes appended since."""
    has_more: bool = False
    """Whether the partition has more records than its response."""
    is_open: bool = False
    """Whether a committed read ended at an open transaction, whose end adds few bytes."""


@dataclass(eq=False, repr=False)
class PartitionReader:
    """Reads partitions for Fetch requests, and encodes their responses."""

    node: Node
    log_reader: LogReader
    stream_reads: StreamReads
    memory: ResponseMemory
    offsets_view: OffsetsView
    epochs: LeaderEpochs

    def response_limit(self, params: FetchParams) -> int:
        """Return how many bytes of records the response may have, after its first batch."""
        max_bytes = min(params.max_bytes, self.node.settings().integer("fetch.max.bytes"))
        return min(max(max_bytes, 0), self.memory.available)

    async def read(self, fetch: PartitionFetch, params: FetchParams, limit: int) -> ReadResult:
        """Read the partition from its fetch offset, or what its client's Redis group delivers."""
        topic, request = fetch.topic, fetch.request
        error = self.epochs.check(max(request.current_leader_epoch, -1))
        if error:
            return ReadResult(error)
        max_bytes = max(0, min(request.partition_max_bytes, limit))
        if topic is self.offsets_view.topic:
            return await self._read_view(request, params, max_bytes)
        wanted = ReadRequest(
            topic,
            request.partition,
            request.fetch_offset,
            max_bytes,
            committed=params.committed,
            batches=takes_batches(topic, params.version),
            decompress=True,
            leader_epoch=request.current_leader_epoch,
        )
        try:
            diverged = await self._find_divergence(topic, request)
            if diverged is not None:
                return diverged
            member = self.stream_reads.find_member(params.client_id)
            if member is not None:
                delivered = await self.stream_reads.deliver(
                    member, topic, wanted.partition, wanted.offset
                )
                if delivered is not None:
                    return await self._read_delivered(wanted, *delivered)
            return await self._read_log(wanted, request, params)
        except StoreError:
            return ReadResult(ErrorCode.KAFKA_STORAGE_ERROR)

    async def _read_log(
        self, wanted: ReadRequest, request: FetchPartition, params: FetchParams
    ) -> ReadResult:
        while True:
            result = await self.log_reader.read(wanted)
            if result.error == ErrorCode.KAFKA_STORAGE_ERROR:
                self._log_missing_store(wanted)
            elif result.error == ErrorCode.FENCED_LEADER_EPOCH:
                await self.epochs.follow(result.epoch)
            self.epochs.saw(wanted.topic, wanted.partition, result.end)
            if _has_read_lost_records(wanted, request, result.epochs) and not await self._is_first(
                wanted
            ):
                return ReadResult(ErrorCode.OFFSET_OUT_OF_RANGE)
            # A message set cannot say that offsets hold no records: skip those here.
            if params.version >= BATCHES_SINCE or not await in_thread(
                partial(_holds_nothing, wanted, result.entries)
            ):
                return result
            wanted = msgspec.structs.replace(wanted, offset=result.entries[-1].last + 1)

    async def _is_first(self, wanted: ReadRequest) -> bool:
        """Return whether the log's first entry is at the offset."""
        bounds = await self.node.store.run(wanted.topic.partition(wanted.partition).list_offsets())
        return bounds.first == wanted.offset

    async def _find_divergence(self, topic: Topic, request: FetchPartition) -> ReadResult | None:
        """Return the end of the epoch that the client read last, if it is above that."""
        last, offset = request.last_fetched_epoch, request.fetch_offset
        if last < 0:
            return None
        bounds = await self.node.store.run(topic.partition(request.partition).list_offsets())
        if bounds.error:
            return None
        if last > self.epochs.epoch or offset < bounds.start:
            return ReadResult(ErrorCode.OFFSET_OUT_OF_RANGE)
        end = end_of(last, parse_rows(bounds.epochs), bounds.next)
        if end >= offset:
            return None
        result = ReadResult(ErrorCode.NONE, bounds.start, bounds.next, stable=bounds.stable)
        result.diverging = end
        return result

    async def _read_view(
        self, request: FetchPartition, params: FetchParams, max_bytes: int
    ) -> ReadResult:
        """Read `__consumer_offsets`, which has batches only."""
        if params.version < BATCHES_SINCE:
            return ReadResult(ErrorCode.UNSUPPORTED_VERSION)
        try:
            return await self.offsets_view.read(request.partition, request.fetch_offset, max_bytes)
        except StoreError:
            return ReadResult(ErrorCode.KAFKA_STORAGE_ERROR)

    def _log_missing_store(self, wanted: ReadRequest) -> None:
        if self.log_reader.remote is None:
            logger.error_again(
                "remote read failed: this broker has no remote store",
                topic=wanted.topic.name,
                partition=wanted.partition,
                advice="set remote.log.storage.system.enable and remote.storage.url as before",
            )

    async def _read_delivered(self, wanted: ReadRequest, first: int, last: int) -> ReadResult:
        """Read the entries that a Redis group has delivered to this client, and no others."""
        wanted = msgspec.structs.replace(wanted, offset=first, batches=False)
        result = await self.log_reader.read(wanted)
        result.entries = [entry for entry in result.entries if entry.first <= last]
        result.size = sum(entry.size for entry in result.entries)
        return result

    def encode(self, fetch: PartitionFetch, result: ReadResult, params: FetchParams) -> Encoded:
        """Return the entries as the client reads them, or an error."""
        request = fetch.request
        try:
            return ErrorCode.NONE, encode_records(
                fetch.topic,
                result,
                request.fetch_offset,
                request.partition_max_bytes,
                params.version,
            )
        except BadBatch as bad:
            # INVALID_RECORD is an error for producers.
            is_invalid = bad.error == ErrorCode.INVALID_RECORD
            return ErrorCode.CORRUPT_MESSAGE if is_invalid else bad.error, []

    def respond(
        self,
        fetch: PartitionFetch,
        result: ReadResult,
        params: FetchParams,
        limit: int,
        first: bool,
        encoded: Encoded | None = None,
    ) -> None:
        """Set the partition's response: records if they fit the limit or are the `first` ones."""
        error = result.error
        parts: list[Buffer] = []
        if error in TOPIC_GONE:
            self.node.topics.invalidate()
            if params.version < TOPIC_IDS_SINCE:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not error and result.batches and (result.size <= limit or first):
            parts = list(result.batches)
        elif not error and result.entries and (result.size <= limit or first):
            if encoded is None:
                encoded = self.encode(fetch, result, params)
            error, parts = encoded
        aborted = None
        if params.committed:
            aborted = [AbortedTransaction(producer_id=p, first_offset=o) for p, o in result.aborted]
        fetch.response = PartitionData(
            aborted_transactions=aborted,
            partition_index=fetch.request.partition,
            error_code=error,
            high_watermark=result.end,
            last_stable_offset=result.last_stable,
            log_start_offset=result.start,
            records=parts,
            diverging_epoch=EpochEndOffset(
                epoch=-1 if result.diverging < 0 else fetch.request.last_fetched_epoch,
                end_offset=result.diverging,
            ),
        )
        fetch.records = 0
        if parts and result.batches:
            fetch.records = result.record_count
        elif parts:
            fetch.records = layout_of(fetch.topic).count_records(result.entries)
        fetch.size = sum(map(len, parts))
        fetch.appended, fetch.grown = result.appended, 0
        fetch.is_open = params.committed and result.last_stable < result.end

    async def estimate_growth(self, fetches: Sequence[PartitionFetch]) -> bool:
        """Set `grown` from the logs' counters. Returns False if the partitions must be read.

        The counters do not say how many bytes a reader gets if a transaction is open or the
        partition has an error. The same holds if its topic or fetch offset no longer exists.
        """
        if any(one.is_open or (one.response and one.response.error_code) for one in fetches):
            return False
        pending = [
            self.node.store.submit_command(
                "HMGET", one.topic.partition(one.request.partition).log, *GROWTH
            )
            for one in fetches
        ]
        states = await asyncio.gather(*pending, return_exceptions=True)
        for one, state in zip(fetches, states, strict=True):
            if isinstance(state, BaseException) or state[0] != one.topic.id.encode():
                return False
            if one.request.fetch_offset < int(state[1]):
                return False
            one.grown = max(0, int(state[2]) - one.appended)
        return True


def opens_batches(topic: Topic, version: int) -> bool:
    """Return whether stored batches are opened for a client of that version."""
    is_old = version < BATCHES_SINCE and layout_of(topic).holds_batches
    return is_old or topic.policy.offset_mode == "bytes"


def takes_batches(topic: Topic, version: int) -> bool:
    """Return whether a client takes the batches of segments as stored."""
    is_zstd = topic.policy.compression_type == "zstd"
    return version >= (ZSTD_SINCE if is_zstd else BATCHES_SINCE)


def _holds_nothing(request: ReadRequest, entries: Sequence[Entry]) -> bool:
    """Return whether there are entries, and none with a record from the request's offset on."""
    if not entries:
        return False
    topic, layout = request.topic, layout_of(request.topic)
    return not any(layout.has_record_from(topic, entry, request.offset) for entry in entries)


def _has_read_lost_records(
    wanted: ReadRequest, request: FetchPartition, epochs: bytes | None
) -> bool:
    """Return whether the client has to learn that it is above the end that the log had.

    A client that compares its position with the leader epochs has done so before. In time mode one
    that names no epoch continues with the records that there are.
    """
    if wanted.topic.policy.offset_mode == "time" and request.current_leader_epoch < 0:
        return False
    return is_lost(wanted.offset, parse_rows(epochs))
