"""Record in a stream's offset how the batch that ends there is divided into tasks.

Rules
- A batch is divided by its end offset alone. Spark logs the end before any task starts, so a
  repeated batch has the same tasks even if the options have changed.
- The end records the decision to group small splits as if the user had set joinPartitions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from korvet.spark.metadata import MetadataClient
from korvet.spark.options import DEFAULT_SPLIT_BYTES, SPLITTING, ReadOptions
from korvet.spark.partitions import OffsetRange
from korvet.spark.plan.splits import join_small_ranges

_FIELDS: dict[str, tuple[str, int | None]] = {
    "maxBytesPerPartition": ("split_bytes", DEFAULT_SPLIT_BYTES),
    "maxRecordsPerPartition": ("max_records", None),
    "minPartitions": ("min_partitions", None),
    "joinPartitions": ("joined", None),
}
"""The field of each recorded option, and its default."""


def plan_splitting(
    metadata: MetadataClient, options: ReadOptions, ranges: Sequence[OffsetRange]
) -> dict[str, Any]:
    """Return the recorded options for a batch of these ranges, without defaults."""
    options = join_small_ranges(metadata, options, ranges)
    return {
        name: value
        for name, (field, default) in _FIELDS.items()
        if (value := getattr(options, field)) != default
    }


def apply_splitting(end: Mapping[str, Any], options: ReadOptions) -> ReadOptions:
    """Return the options with the values recorded in the batch's end offset."""
    recorded = end.get(SPLITTING, {})
    planned = {field: recorded.get(name, default) for name, (field, default) in _FIELDS.items()}
    return msgspec.structs.replace(options, **planned)
