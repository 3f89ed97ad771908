"""Topics in which an offset is a byte position: what is stored, and both worlds' view of it.

    set      messages of Kafka 0.7, as their producer sent them
    batch    instead: a record batch of a newer client; for 0.7 it is its records as messages
    count    the offsets the entry takes: the bytes it has for 0.7
    tail     how many of those lie behind the last record's own offset

Rules
- What 0.7 reads of an entry never changes, and is exactly `count` bytes long: offsets depend on it.
- A 0.7 message has no time: its records have that of the append.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from korvet.keys import Keys
from korvet.scripts import log
from korvet.scripts.call import Arg, Call
from korvet.scripts.log import AppendReply
from korvet.topics.table import Topic
from korvet.wire import message_sets_v07, record_entries, records
from korvet.wire.records import BOMB_FACTOR, BadBatch, Buffer, Record

_SET = b"set"


class ByteEntry(NamedTuple):
    """An entry's fields as what they are."""

    payload: bytes
    is_set: bool
    append_time: int | None


def append_set(keys: Keys, topic: Topic, partition: int, data: Buffer) -> Call[AppendReply]:
    """The call that appends a set of 0.7 messages, or BadBatch."""
    most = topic.policy.max_message_bytes
    found = message_sets_v07.pieces(data, limit=most * BOMB_FACTOR, most=most)
    fields: list[Arg] = []
    for piece in found:
        size = len(piece.raw)
        fields += (size, 6, _SET, piece.raw, b"count", size, b"tail", piece.tail)
    return log.append(
        keys,
        topic.name,
        partition,
        topic_id=topic.id,
        count=sum(piece.records for piece in found),
        size=sum(len(piece.raw) for piece in found),
        max_timestamp=-1,
        stamp=1,
        fields=fields,
    )


def stored(fields: Sequence[bytes]) -> ByteEntry:
    """What an entry holds."""
    at = 2 if fields[0] == b"append.time" else 0
    return ByteEntry(fields[at + 1], fields[at] == _SET, record_entries.append_time_of(fields))


def tail_of(fields: Sequence[bytes]) -> int:
    """How many of the entry's offsets lie behind its last record's own."""
    if len(fields) < 4 or fields[-2] != b"tail" or not fields[-1].isdigit():
        return 0
    return int(fields[-1]) if len(fields[-1]) < 17 else 0


def raw_of(fields: Sequence[bytes]) -> Buffer:
    """The entry's bytes of the log, as 0.7 reads it."""
    found = stored(fields)
    if found.is_set:
        return found.payload
    return message_sets_v07.build(_records(found.payload))


def _records(batch: bytes) -> list[Record]:
    """A batch's records; none of what somebody added who knows no batches."""
    try:
        return records.records_of(batch)
    except BadBatch:
        return []


def records_of(first: int, fields: Sequence[bytes]) -> list[Record]:
    """Every record of the entry that begins at `first`, at its own offset; none of messages that
    no producer sent, and that do not parse."""
    found = stored(fields)
    if found.is_set:
        try:
            return message_sets_v07.records_of(found.payload, first, found.append_time or 0)
        except (ValueError, IndexError, struct.error):
            return []
    out: list[Record] = []
    for _, timestamp, key, value, headers in _records(found.payload):
        time = timestamp if found.append_time is None else found.append_time
        out.append((first, time, key, value, headers))
        first += message_sets_v07.OVERHEAD + len(value or b"")
    return out


def batch_from(
    offset: int, first: int, last: int, fields: Sequence[bytes], epoch: int, codec: int
) -> bytearray | None:
    """The entry's records from `offset` on as one record batch that reaches to `last`.

    None when there are none.
    """
    found = [record for record in records_of(first, fields) if record[0] >= offset]
    if not found:
        return None
    batch = records.build(
        found, codec=codec, append_time=record_entries.append_time_of(fields), leader_epoch=epoch
    )
    records.reach(batch, last)
    return batch
