"""Find the first record at or after a time."""

from korvet.scripts import log
from korvet.spark.columns import ALWAYS
from korvet.spark.decode.decoder import Decoder
from korvet.spark.decode.range_scan import RangeScan
from korvet.spark.decode.schema import arrow_schema
from korvet.spark.metadata import MetadataClient, OffsetRange, PartitionLog, raise_if_gone


def offset_for_time(
    metadata: MetadataClient, part: PartitionLog, moment: int, end: int
) -> int | None:
    """Return the offset of the first record at or after `moment` (ms) and below `end`, or None."""
    sought = metadata.store.run(
        log.find_timestamp(
            metadata.keys, part.topic, part.partition, topic_id=part.topic_id, timestamp=moment
        )
    )
    raise_if_gone(part, sought.error)
    whole = OffsetRange(part, sought.offset, end)
    decoder = Decoder(whole, arrow_schema(tuple(n for n in ALWAYS if n in ("offset", "timestamp"))))
    for rows in RangeScan(metadata.store, metadata.keys, whole, fail_on_data_loss=False):
        for batch in decoder.decode(rows):
            offsets, times = batch.column("offset"), batch.column("timestamp").cast("int64")
            later = (times.to_numpy() >= moment * 1000).nonzero()[0]
            if len(later):
                return int(offsets[int(later[0])].as_py())
    return None
