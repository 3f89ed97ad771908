"""Read a range of a partition from segments, in a task.

Rules
- Segments hold record batches in both layouts: the decoder of layout `batch` reads them.
- A range whose segments retention removed meanwhile is a data loss; another failed read is an error
  that names topic, partition and offsets.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from korvet.log.entry import entry_id
from korvet.remote_log.store import RemoteStorageError
from korvet.remote_log.sync_reader import SyncSegmentReader
from korvet.spark.columns import arrow_schema
from korvet.spark.decode.decoder import Decoder
from korvet.spark.decode.xrange_reply import XRangeReply
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import ReadOptions
from korvet.spark.partitions import OffsetRange, data_lost_error
from korvet.wire.segments import headers_in

logger = logging.getLogger("korvet.spark")


def read_segments(
    metadata: MetadataClient, options: ReadOptions, names: Sequence[str], wanted: OffsetRange
) -> Iterator[Any]:
    """Yield the records of a range as Arrow record batches with these columns."""
    at = wanted.start
    try:
        with metadata.open_segments() as reader:
            committed = options.committed_only
            for following, batch in decode_segments(reader, wanted, names, committed=committed):
                at = following
                yield batch
    except RemoteStorageError:
        [bound] = metadata.bounds([wanted.log])
        if bound.start <= at:
            raise
        error = data_lost_error(wanted.log, at, wanted.end, bound.start)
        if options.fail_on_data_loss:
            raise error from None
        logger.warning("%s", error)
        if bound.start < wanted.end:
            left = OffsetRange(wanted.log, bound.start, wanted.end)
            yield from read_segments(metadata, options, names, left)


def decode_segments(
    reader: SyncSegmentReader, wanted: OffsetRange, names: Sequence[str], *, committed: bool
) -> Iterator[tuple[int, Any]]:
    """Yield record batches of a range with these columns, each with the next offset to read."""
    log = msgspec.structs.replace(wanted.log, is_batch=True)
    whole = OffsetRange(log, wanted.start, wanted.end)
    schema = arrow_schema(tuple(names))
    for run in reader.runs(log.handle(reader.keys), wanted.start, wanted.end):
        aborted = run.segment.aborted if committed else ()
        rows = []
        for at, size, header in headers_in(run.batches):
            last = header.base_offset + header.last_offset_delta
            count = b"%d" % (header.last_offset_delta + 1)
            fields = [b"batch", bytes(run.batches[at : at + size]), b"count", count]
            rows.append([entry_id(log.mode, log.bits, last).encode(), fields])
        for batch in Decoder(whole, schema, aborted).decode(XRangeReply.of(rows)):
            yield run.next_offset, batch
