"""Control records: transaction markers, COMMIT or ABORT.

In layout `batch` the marker is a control batch as Kafka writes it. In layout `record` it is an
entry of

control       commit or abort
transaction   the producer id
epoch         the producer epoch
timestamp     ms

and a transactional record is an entry whose first field is `transaction`. Both fields come first in
an entry (after `append.time`, if present), so one comparison identifies a plain record.
"""

import struct
from collections.abc import Sequence

from korvet.wire import batch_builder, records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
ABORT, COMMIT = 0, 1
NAMES = (b"abort", b"commit")


def control_batch(
    base: int, timestamp: int, producer_id: int, epoch: int, committed: bool, leader_epoch: int = 0
) -> bytearray:
    """Build the control batch of one marker."""
    key, value = _KEY.pack(0, COMMIT if committed else ABORT), _VALUE.pack(0, 0)
    batch = batch_builder.build(
        [(base, timestamp, key, value, [])],
        leader_epoch=leader_epoch,
        transactional=True,
        producer=(producer_id, epoch, -1),
    )
    header = records.read_header(batch)
    batch_builder.put_header(batch, header._replace(attributes=header.attributes | records.CONTROL))
    return batch


def fields_of(timestamp: int, producer_id: int, epoch: int, committed: bool) -> list[bytes]:
    """Return the fields and values of a marker in layout `record`."""
    return [
        b"control",
        NAMES[committed],
        b"transaction",
        b"%d" % producer_id,
        b"epoch",
        b"%d" % epoch,
        b"timestamp",
        b"%d" % timestamp,
    ]


def entry_of(
    timestamp: int, producer_id: int, epoch: int, committed: bool, *, is_batch: bool
) -> list[bytes]:
    """Return the fields and values of a marker's entry in either layout."""
    if not is_batch:
        return fields_of(timestamp, producer_id, epoch, committed)
    batch = bytes(control_batch(0, timestamp, producer_id, epoch, committed))
    return [b"batch", batch, b"count", b"1", b"max.timestamp", b"%d" % timestamp]


def producer_of(fields: Sequence[bytes]) -> int | None:
    """Return the producer id of a transactional entry in layout `record`, or None.

    Markers are transactional entries too.
    """
    at = _at(fields)
    if len(fields) > at + 1 and fields[at] == b"transaction":
        return _number(fields[at + 1])
    return _number(fields[at + 3]) if is_marker(fields) else None


def is_marker(fields: Sequence[bytes]) -> bool:
    """Return whether an entry of layout `record` is a marker.

    A field `control` alone does not make a marker.
    """
    at = _at(fields)
    return len(fields) >= at + 6 and fields[at] == b"control" and fields[at + 2] == b"transaction"


def batch_of(offset: int, fields: Sequence[bytes], leader_epoch: int) -> bytearray:
    """Build the control batch of a marker in layout `record`."""
    at = _at(fields)
    values = dict(zip(fields[at + 2 :: 2], fields[at + 3 :: 2], strict=True))
    return control_batch(
        offset,
        _number(values.get(b"timestamp", b"0")) or 0,
        _number(values[b"transaction"]) or 0,
        (_number(values.get(b"epoch", b"0")) or 0) & 0x7FFF,
        fields[at + 1] == NAMES[COMMIT],
        leader_epoch,
    )


def _at(fields: Sequence[bytes]) -> int:
    return 2 if fields and fields[0] == b"append.time" else 0


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) < 20 else None
