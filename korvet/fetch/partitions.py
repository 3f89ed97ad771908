"""Filling the partitions of a fetch answer, within its bytes and in its client's message format."""

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from korvet import logfmt
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.groups.stream_reads import delivered
from korvet.log import byte_offsets
from korvet.log.entry import Entry, any_stamped, batches_of, nothing_from, records_in, runs_of
from korvet.log.read_result import ReadResult
from korvet.log.reader import LogReader
from korvet.store.errors import StoreError
from korvet.topics.table import Topic
from korvet.wire import compression, control_records, message_sets, record_entries, records
from korvet.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    PartitionData,
)
from korvet.wire.records import BadBatch, Buffer, Record

LEADER_EPOCH = 0
READ_COMMITTED = 1
BY_ID = 13
"""The version from which on Fetch names topics by their ids."""
MOST_OWED = 512 << 20
"""Beyond so many bytes that clients have not taken yet, a fetch answers LEAST_ANSWER at most."""
LEAST_ANSWER = 1 << 20
MOST_WAITING = 1 << 16
"""So many bytes a fetch keeps while it waits for more; others it reads again in the end."""
GROWTH = ("topic_id", "start", "bytes")
LENGTHY = 500
"""So many records of one partition are work of some milliseconds, where each is an entry."""
log = logfmt.get("fetching")


def epoch_error(current: int) -> ErrorCode:
    """What is wrong with the leader epoch a client believes in; -1 believes in none."""
    if current > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.FENCED_LEADER_EPOCH if current < -1 else ErrorCode.NONE


class PartitionFetch(msgspec.Struct):
    """One partition of a request, and its answer as soon as there is one."""

    topic: Topic
    asked: FetchPartition
    answer: PartitionData | None = None
    records: int = 0
    size: int = 0
    appended: int = 0
    """Bytes ever appended to the log when it was read."""
    came: int = 0
    """Bytes that are known to have been appended since, about."""
    is_open: bool = False
    """Whether its reader waits behind transactions, which end without many bytes."""


async def collect(
    wanted: Sequence[PartitionFetch], request: FetchRequest, context: Context, held: int = 0
) -> tuple[int, bool]:
    """The rows hold what there is now. Returns the answer's bytes, of which other rows hold `held`
    already, and whether waiting would be for nothing: a row has an error, or there is more than
    the answer takes."""
    services, limit = context.services, _limit(request, context)
    size, failed, more, at = held, False, False, 0
    while at < len(wanted):
        wave, planned = at, 0
        while at < len(wanted) and (at == wave or size + planned < limit):
            row = wanted[at]
            # However little is asked for, a whole batch comes.
            planned += max(row.asked.partition_max_bytes, row.topic.policy.max_message_bytes)
            at += 1
        committed = request.isolation_level == READ_COMMITTED
        reads = [_read(row, context, limit - size, committed) for row in wanted[wave:at]]
        services.owed_bytes += (reading := min(planned, limit))
        try:
            slices = await asyncio.gather(*reads) if len(reads) > 1 else [await reads[0]]
        finally:
            services.owed_bytes -= reading
        for row, found in zip(wanted[wave:at], slices, strict=True):
            row.answer, taken = _answer(row, found, limit - size, size == 0, context)
            if committed:
                row.answer = replace(row.answer, aborted_transactions=_aborted(found))
            row.appended, row.came = found.appended, 0
            row.is_open = committed and found.last_stable < found.end
            size += taken
            failed = failed or row.answer.error_code != 0
            more = more or _goes_on(found, taken, committed)
            if row.records > LENGTHY:
                await asyncio.sleep(0)  # building it took a while: others first
    return size, failed or (more and size > 0)


def _limit(request: FetchRequest, context: Context) -> int:
    """How many bytes of records the answer has at most, but for a first batch that has more."""
    return min(
        max(request.max_bytes, 0),
        context.settings.integer("fetch.max.bytes"),
        max(MOST_OWED - context.services.owed_bytes, LEAST_ANSWER),
    )


def shed(wanted: Sequence[PartitionFetch]) -> None:
    """These answers are gone if they are too large to be kept while more is waited for; of what
    they had only the sizes are known."""
    if sum(row.size for row in wanted) > MOST_WAITING:
        for row in wanted:
            if row.size:
                row.answer = None


async def collect_again(
    wanted: Sequence[PartitionFetch], request: FetchRequest, context: Context
) -> None:
    """Those that were shed have an answer again."""
    rows = [row for row in wanted if row.answer is None]
    if rows:
        held = sum(row.size for row in wanted if row.answer is not None)
        await collect(rows, request, context, held)


async def grown(rows: Sequence[PartitionFetch], context: Context) -> bool:
    """It is known how much `came` to these. False where the counters do not tell how many bytes
    there are for their readers."""
    if any(row.is_open or (row.answer and row.answer.error_code) for row in rows):
        return False
    logs_of = [context.keys.partition(row.topic.name, row.asked.partition).log for row in rows]
    asked = [context.store.submit_command("HMGET", log, *GROWTH) for log in logs_of]
    found = await asyncio.gather(*asked, return_exceptions=True)
    for row, state in zip(rows, found, strict=True):
        if isinstance(state, BaseException) or state[0] != row.topic.id.encode():
            return False
        if row.asked.fetch_offset < int(state[1]):  # what it asks for is gone by now
            return False
        row.came = max(0, int(state[2]) - row.appended)
    return True


def suffices(wanted: Sequence[PartitionFetch], request: FetchRequest, context: Context) -> bool:
    """Whether there are by now the bytes that are waited for, or more than fits."""
    sizes = [row.size + row.came for row in wanted]
    if sum(sizes) >= min(request.min_bytes, _limit(request, context)):
        return True
    return any(
        row.came and size > row.asked.partition_max_bytes
        for row, size in zip(wanted, sizes, strict=True)
    )


def _goes_on(found: ReadResult, taken: int, committed: bool) -> bool:
    """Whether the partition has more than the bytes taken of it for this answer."""
    end = found.last_stable if committed else found.end
    return bool(found.entries) and (not taken or found.entries[-1].last + 1 < end)


async def _read(
    wanted: PartitionFetch, context: Context, limit: int, committed: bool
) -> ReadResult:
    asked = wanted.asked
    error = epoch_error(max(asked.current_leader_epoch, -1))
    if error:
        return ReadResult(error)
    offset, most = asked.fetch_offset, max(0, min(asked.partition_max_bytes, limit))
    try:
        given = await delivered(context, wanted.topic, asked.partition, offset)
        if given is not None:
            return await _given(wanted, context, given, most, committed)
        while True:
            found = await reader(context).read(
                wanted.topic, asked.partition, offset, most, committed=committed, sent=True
            )
            # A message set cannot say what is passed over: it has to begin behind that.
            if context.version >= 4 or not nothing_from(wanted.topic, found.entries, offset):
                return found
            offset = found.entries[-1].last + 1
    except StoreError:
        return ReadResult(ErrorCode.KAFKA_STORAGE_ERROR)


async def _given(
    wanted: PartitionFetch, context: Context, given: tuple[int, int], most: int, committed: bool
) -> ReadResult:
    """What a Redis group has delivered to this client, and nothing else."""
    first, last = given
    found = await reader(context).read(
        wanted.topic, wanted.asked.partition, first, most, committed=committed, sent=True
    )
    found.entries = [entry for entry in found.entries if entry.first <= last]
    found.size = sum(entry.size for entry in found.entries)
    return found


def note_replica(replica_id: int, context: Context) -> None:
    """Somebody says to be a replica: it is answered as a consumer, and the log says so once."""
    seen = context.services.replica_ids_logged
    who = (context.client_host, replica_id)
    if who not in seen and len(seen) < 1000:
        seen.add(who)
        log.info(
            "a replica id is ignored: replicas are answered as consumers are",
            client=context.client_host,
            client_id=context.client_id,
            replica_id=replica_id,
        )


def reader(context: Context) -> LogReader:
    """Return this process's reader, which caches entry sizes and batches."""
    return context.services.log_reader


def _answer(
    wanted: PartitionFetch, found: ReadResult, limit: int, first: bool, context: Context
) -> tuple[PartitionData, int]:
    """The partition's answer and the bytes of records in it: none when they no longer fit."""
    error = found.error
    parts: list[Buffer] = []
    if error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        context.topics.drop()
        if context.version < BY_ID:
            # Whoever asks by name does not know that topics have ids.
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif not error and found.entries and (found.size <= limit or first):
        try:
            parts = _records(wanted, found, context)
        except BadBatch as bad:
            unread = bad.error == ErrorCode.INVALID_RECORD  # a word for producers
            error = ErrorCode.CORRUPT_MESSAGE if unread else bad.error
    answer = PartitionData(
        aborted_transactions=None,
        partition_index=wanted.asked.partition,
        error_code=error,
        high_watermark=found.end,
        last_stable_offset=found.last_stable,
        log_start_offset=found.start,
        records=parts,
    )
    wanted.records = _count(wanted.topic, found, parts)
    wanted.size = sum(map(len, parts))
    return answer, wanted.size


def _count(topic: Topic, found: ReadResult, parts: Sequence[Buffer]) -> int:
    """How many records these parts carry; of 0.7's sets, how many entries."""
    if not parts:
        return 0
    if topic.is_bytes:
        return len(found.entries)
    return sum(entry.last - entry.first + 1 for entry in found.entries)


def _aborted(found: ReadResult) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first)
        for producer_id, first in found.aborted
    ]


def _records(wanted: PartitionFetch, found: ReadResult, context: Context) -> list[Buffer]:
    """The slice in the message format this version understands. Stored batches leave as they are,
    zstd too: Kafka 4 no longer keeps them from clients of a time before it."""
    if context.version < 4:
        return [_message_set(wanted, found, context.version)]
    if wanted.topic.is_bytes:
        return _byte_batches(wanted, found, context.version)
    if not wanted.topic.is_batch:
        return _batches(wanted.topic, found, context.version)
    return batches_of(found.entries, found.epoch)


def _codec(topic: Topic, version: int) -> int:
    """The topic's compression.type, where this version's clients know it."""
    codec = compression.BY_NAME.get(topic.policy.compression_type, compression.NONE)
    return compression.NONE if codec == compression.ZSTD and version < 10 else codec


def _byte_batches(wanted: PartitionFetch, found: ReadResult, version: int) -> list[Buffer]:
    """The records of a topic of byte positions, those before the offset asked for left out: a
    client that committed the last record's offset + 1 stands inside a message."""
    codec = _codec(wanted.topic, version)
    offset = wanted.asked.fetch_offset
    built = [
        byte_offsets.batch_from(offset, entry.first, entry.last, entry.fields, found.epoch, codec)
        for entry in found.entries
    ]
    return [batch for batch in built if batch is not None]


def _batches(topic: Topic, found: ReadResult, version: int) -> list[Buffer]:
    """The records of a `record` topic as batches: one, unless transactions are among them, or
    records that were stamped when they were appended."""
    if found.stable is None and not any_stamped(found.entries):
        return [_one_batch(topic, found.entries, found.epoch, version, None)]
    return [
        control_records.batch_of(run[0].last, run[0].fields, found.epoch)
        if marker
        else _one_batch(topic, run, found.epoch, version, producer_id)
        for producer_id, marker, run in runs_of(found.entries)
    ]


def _one_batch(
    topic: Topic, run: Sequence[Entry], epoch: int, version: int, producer_id: int | None
) -> bytearray:
    """These records as one batch, in the topic's compression.type."""
    codec = _codec(topic, version)
    return records.build(
        [record_entries.record_of(entry.last, entry.milliseconds, entry.fields) for entry in run],
        codec=codec,
        append_time=record_entries.append_time_of(run[-1].fields),
        leader_epoch=epoch,
        transactional=producer_id is not None,
        producer=(-1, -1, -1) if producer_id is None else (producer_id, 0, -1),
    )


def _message_set(wanted: PartitionFetch, found: ReadResult, version: int) -> Buffer:
    """The records as clients before 0.11 read them. Before version 3 such a client gets what it
    asked for to the byte, the last message cut: one that has room for no message says so."""
    asked, magic = wanted.asked, 0 if version < 2 else 1
    codec = compression.BY_NAME.get(wanted.topic.policy.compression_type, compression.NONE)
    rows = [row for row in records_in(wanted.topic, found.entries) if row[0] >= asked.fetch_offset]
    if not rows:
        return b""
    appended = _appended(wanted.topic, found.entries, rows) if magic else ()
    if version > 2:
        return message_sets.build(rows, magic=magic, codec=codec, appended=appended)
    most = max(asked.partition_max_bytes, 0)
    rows = message_sets.within(rows, most, magic=magic)
    built = message_sets.build(rows, magic=magic, codec=codec, appended=appended)
    while len(built) > most and len(rows) > 1 and message_sets.is_compressed(built):
        rows = rows[: len(rows) // 2]  # half of one compressed message would be nothing
        built = message_sets.build(rows, magic=magic, codec=codec)
    return memoryview(built)[:most]


def _appended(topic: Topic, read: Sequence[Entry], rows: Sequence[Record]) -> Collection[int]:
    """The offsets of those of the entries' records that were stamped when they were appended."""
    if topic.is_bytes or not any_stamped(read):
        return ()
    # An entry that others added may say to take any number of offsets, and hold more records.
    ends = [entry.last for entry in read[:-1]]
    return {
        offset
        for offset, *_ in rows
        if record_entries.append_time_of(read[bisect_left(ends, offset)].fields) is not None
    }
