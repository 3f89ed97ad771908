"""Transaction markers: the one record by which a log says how a producer's transaction ended.

In layout `batch` the marker is a control batch as Kafka writes it; in layout `record` an entry of

    control       commit or abort
    transaction   the producer's id
    epoch         the producer's epoch
    timestamp     ms

and a record of a transaction is an entry whose first field is `transaction`. Both marks come first
in an entry (behind `append.time`, if it has one), so one look tells a plain record.
"""

import struct
from collections.abc import Sequence

from korvet.wire import records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
ABORT, COMMIT = 0, 1
NAMES = (b"abort", b"commit")


def control_batch(
    base: int, timestamp: int, producer_id: int, epoch: int, committed: bool, leader_epoch: int = 0
) -> bytearray:
    """The control batch of one marker."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=-1,
        batch_size=2**31 - 1,
    )
    key, value = _KEY.pack(0, COMMIT if committed else ABORT), _VALUE.pack(0, 0)
    builder.append(0, timestamp, key, value, [])
    batch: bytearray = builder.build()
    struct.pack_into(">q", batch, 0, base)
    struct.pack_into(">i", batch, 12, leader_epoch)
    (attributes,) = struct.unpack_from(">h", batch, records.ATTRIBUTES_AT)
    struct.pack_into(">h", batch, records.ATTRIBUTES_AT, attributes | records.CONTROL)
    struct.pack_into(">I", batch, 17, records.checksum(batch))
    return batch


def fields_of(timestamp: int, producer_id: int, epoch: int, committed: bool) -> list[bytes]:
    """The fields and values of a marker in layout `record`."""
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


def producer_of(fields: Sequence[bytes]) -> int | None:
    """Whose transaction an entry of layout `record` belongs to, markers included; None: to none."""
    at = _at(fields)
    if len(fields) > at + 1 and fields[at] == b"transaction":
        return _number(fields[at + 1])
    return _number(fields[at + 3]) if is_marker(fields) else None


def is_marker(fields: Sequence[bytes]) -> bool:
    """Whether an entry of layout `record` is a marker; a lone field `control` makes none."""
    at = _at(fields)
    return len(fields) >= at + 6 and fields[at] == b"control" and fields[at + 2] == b"transaction"


def batch_of(offset: int, fields: Sequence[bytes], leader_epoch: int) -> bytearray:
    """The control batch of a marker in layout `record`."""
    at = _at(fields)
    rest = dict(zip(fields[at + 2 :: 2], fields[at + 3 :: 2], strict=True))
    return control_batch(
        offset,
        _number(rest.get(b"timestamp", b"0")) or 0,
        _number(rest[b"transaction"]) or 0,
        (_number(rest.get(b"epoch", b"0")) or 0) & 0x7FFF,
        fields[at + 1] == NAMES[COMMIT],
        leader_epoch,
    )


def is_control_batch(batch: bytes) -> bool:
    """Whether a stored batch is a marker."""
    return bool(batch[records.ATTRIBUTES_AT + 1] & records.CONTROL)


def _at(fields: Sequence[bytes]) -> int:
    return 2 if fields and fields[0] == b"append.time" else 0


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) < 20 else None
