"""Find the first record at or after a time."""

from collections.abc import Iterable
from typing import Any

from korvet.spark.columns import ALWAYS, arrow_schema
from korvet.spark.decode.decoder import Decoder
from korvet.spark.decode.range_scan import RangeScan
from korvet.spark.decode.segment_scan import decode_segments
from korvet.spark.errors import LeftRedis
from korvet.spark.metadata import MetadataClient
from korvet.spark.partitions import OffsetRange, PartitionLog

_NAMES = tuple(name for name in ALWAYS if name in ("offset", "timestamp"))


def offset_for_time(
    metadata: MetadataClient, part: PartitionLog, moment: int, end: int
) -> int | None:
    """Return the offset of the first record at or after `moment` (ms) and below `end`, or None."""
    while True:
        try:
            return _offset_for_time(metadata, part, moment, end)
        except LeftRedis:
            continue  # records left Redis during the search: segments have them now


def _offset_for_time(
    metadata: MetadataClient, part: PartitionLog, moment: int, end: int
) -> int | None:
    [start] = metadata.find_timestamp([part], moment)
    found = _offset_in_segments(metadata, part, moment, end)
    if found is not None:
        return found
    whole = OffsetRange(part, start, end)
    decoder = Decoder(whole, arrow_schema(_NAMES))
    scan = RangeScan(metadata.store, metadata.keys, whole, fail_on_data_loss=False)
    return _first_since((batch for rows in scan for batch in decoder.decode(rows)), moment)


def _offset_in_segments(
    metadata: MetadataClient, part: PartitionLog, moment: int, end: int
) -> int | None:
    """Return the offset of the first such record that left Redis, or None."""
    [bound] = metadata.bounds([part])
    whole = OffsetRange(part, bound.start, end)
    [edge] = metadata.local_starts([whole])
    if edge <= bound.start:
        return None
    with metadata.open_segments() as reader:
        start = reader.find_chunk(part.handle(metadata.keys), whole.start, edge, moment)
        if start is None:
            return None
        whole = OffsetRange(part, max(start, whole.start), edge)
        decoded = decode_segments(reader, whole, _NAMES, committed=False)
        return _first_since((batch for _, batch in decoded), moment)


def _first_since(batches: Iterable[Any], moment: int) -> int | None:
    for batch in batches:
        offsets, times = batch.column("offset"), batch.column("timestamp").cast("int64")
        later = (times.to_numpy() >= moment * 1000).nonzero()[0]
        if len(later):
            return int(offsets[int(later[0])].as_py())
    return None
