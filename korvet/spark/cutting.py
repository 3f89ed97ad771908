"""How a stream's batch is cut into tasks, as its end tells it under "/cut".

Rules
- The end has what was decided where it was planned, and a batch is cut by its end alone: Spark logs
  the end before any task starts, so that a batch that is repeated has the same tasks, whatever the
  options say by then, and whichever build repeats it. Where neighbours are joined of itself, that
  stands there as if it had been asked for.
- They are joined of itself in streams that this build began, or a later one: these carry a word
  from their initial offset on, which Spark asks for only where there is no checkpoint. Others are
  cut as before. Builds of before drop the word; their streams stay as theirs are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from korvet.spark.catalog import Catalog, Range
from korvet.spark.options import CUT, DEFAULT_SPLIT_BYTES, ReadOptions
from korvet.spark.plan import joined_of_itself

JOINS = "joinsMany"
"""The word. Stands in CUT."""
_CUTS: dict[str, tuple[str, int | None]] = {
    "maxBytesPerPartition": ("split_bytes", DEFAULT_SPLIT_BYTES),
    "maxRecordsPerPartition": ("max_records", None),
    "minPartitions": ("min_partitions", None),
    "joinPartitions": ("joined", None),
}
"""The field of each option, and its default."""


def begun(initial: dict[str, Any]) -> dict[str, Any]:
    """The initial offset of a stream that begins: one whose batches may join neighbours."""
    return initial | {CUT: {**initial.get(CUT, {}), JOINS: True}}


def recorded(options: ReadOptions) -> dict[str, Any]:
    """What the options say of cutting, where it is not the default."""
    return {
        name: value
        for name, (field, default) in _CUTS.items()
        if (value := getattr(options, field)) != default
    }


def cut_for(
    known: Mapping[str, Any], catalog: Catalog, options: ReadOptions, ahead: Sequence[Range]
) -> dict[str, Any]:
    """How the batch behind `known` is cut that has these ranges."""
    if not known.get(CUT, {}).get(JOINS):
        return recorded(options)
    return recorded(joined_of_itself(catalog, options, ahead)) | {JOINS: True}


def cut_as(end: Mapping[str, Any], options: ReadOptions) -> ReadOptions:
    """The options, but those that a batch with this end was planned with: a writer knows the tasks
    of a batch that is repeated by their numbers."""
    cut = end.get(CUT, {})
    planned = {field: cut.get(name, default) for name, (field, default) in _CUTS.items()}
    return msgspec.structs.replace(options, **planned)
