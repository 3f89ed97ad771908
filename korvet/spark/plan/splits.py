"""Divide offset ranges into splits and group small splits into tasks.

Rules
- A stream's batch is divided by its end offset alone. Spark logs the end before any task starts, so
  a repeated batch has the same tasks even if the options have changed.
- The end records the decision to group small splits as if the user had set joinPartitions.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from korvet.spark.metadata import MetadataClient
from korvet.spark.options import DEFAULT_SPLIT_BYTES, SPLITTING, ReadOptions
from korvet.spark.partitions import OffsetRange

MAX_SPLITS = 10_000
JOIN_ABOVE = 64
"""Group small splits if a batch read has more splits than this, or a stream's batch more
partitions: Spark needs 15 to 60 ms for each task of a Python source, however little it reads."""
MIN_TASKS = 32
"""Min tasks after grouping, so that as many cores have work; `minPartitions` raises it."""
STEP_BYTES = 64 << 10
"""Distance of two rows of the sparse index in bytes: the error of an estimated size."""


def split_batch(
    metadata: MetadataClient, options: ReadOptions, ranges: Sequence[OffsetRange]
) -> list[OffsetRange]:
    """Divide the ranges of a batch read: those that left Redis by segments."""
    found: list[OffsetRange] = []
    edges = metadata.local_starts(ranges) if ranges else []
    if all(edge <= each.start for each, edge in zip(ranges, edges, strict=True)):
        return split_ranges(metadata, options, ranges)
    with metadata.open_segments() as reader:
        for each, edge in zip(ranges, edges, strict=True):
            low = each.start
            handle = each.log.handle(metadata.keys)
            for high in reader.cuts(handle, low, edge, options.split_bytes):
                found.append(OffsetRange(each.log, low, high))
                low = high
            found.append(OffsetRange(each.log, low, each.end))
    return split_ranges(metadata, options, [each for each in found if each.start < each.end])


def split_stream(
    metadata: MetadataClient, options: ReadOptions, ranges: Sequence[OffsetRange]
) -> list[OffsetRange]:
    """Divide the ranges of a stream's batch, the same way if they left Redis meanwhile.

    A range of a topic with remote.storage.enable is one split, in dense mode one for each
    maxRecordsPerPartition offsets.
    """
    local = [each for each in ranges if not each.log.is_remote]
    found = split_ranges(metadata, options, local) if local else []
    for each in ranges:
        if each.log.is_remote:
            step = options.max_records if each.log.mode == "dense" else None
            step = step or each.end - each.start
            found += [
                OffsetRange(each.log, low, min(low + step, each.end))
                for low in range(each.start, each.end, step)
            ]
    return sorted(found, key=lambda each: (each.log, each.start))


def split_ranges(
    metadata: MetadataClient, options: ReadOptions, ranges: Sequence[OffsetRange]
) -> list[OffsetRange]:
    """Divide the ranges by the options' limits, without gap or overlap."""
    if options.max_records is not None:
        ranges = _split_by_records(metadata, ranges, options.max_records)
    wanted = _split_counts(metadata, options, ranges)
    found = [
        piece
        for each, count in zip(ranges, wanted, strict=True)
        for piece in _split_by_bytes(metadata, each, count)
    ]
    least = min(options.min_partitions or 1, MAX_SPLITS)
    if len(found) >= least:
        return found
    # The ranges are smaller than the index can resolve.
    return _split_by_records(metadata, found, max(1, sum(metadata.count(found)) // least))


def group_batch_splits(
    metadata: MetadataClient, options: ReadOptions, splits: Sequence[OffsetRange]
) -> list[tuple[OffsetRange, ...]]:
    """Group neighbouring splits of a batch read into tasks of up to `split_bytes`."""
    # maxRecordsPerPartition limits a task, unless joinPartitions is set as well.
    few = len(splits) <= JOIN_ABOVE or options.max_records is not None
    if options.joined is False or (options.joined is None and few):
        return [(each,) for each in splits]
    sizes = range_sizes(metadata, splits)
    least = 1 if options.joined else MIN_TASKS
    least = min(options.min_partitions or least, len(splits))
    max_bytes = min(options.split_bytes, sum(sizes) // max(1, least))
    while len(groups := _group_by_size(splits, sizes, max_bytes)) < least:
        max_bytes //= 2
    return groups


def group_stream_splits(
    options: ReadOptions, splits: Sequence[OffsetRange]
) -> list[tuple[OffsetRange, ...]]:
    """Group neighbouring splits of a stream's batch into tasks of equally many splits.

    Groups depend on the number of splits only, not on sizes that change: a writer identifies the
    tasks of a repeated batch by their numbers.
    """
    count = max(MIN_TASKS, options.min_partitions or 0) if options.joined else len(splits)
    edges = [len(splits) * n // count for n in range(count + 1)] if splits else []
    return [tuple(splits[low:high]) for low, high in pairwise(edges) if low < high]


def join_small_ranges(
    metadata: MetadataClient, options: ReadOptions, ahead: Sequence[OffsetRange]
) -> ReadOptions:
    """Enable grouping if a stream's batch has more than JOIN_ABOVE small ranges.

    Options set by the user win. Tasks get about `split_bytes`, as in a batch read.
    """
    if options.joined is not None or options.max_records is not None or len(ahead) <= JOIN_ABOVE:
        return options
    least = -(-sum(range_sizes(metadata, ahead)) // options.split_bytes)
    if least >= len(ahead):
        return options  # the ranges are large: one task each
    least = max(least, options.min_partitions or 0)
    wanted = least if least > MIN_TASKS else options.min_partitions
    return msgspec.structs.replace(options, joined=True, min_partitions=wanted)


def _group_by_size(
    splits: Sequence[OffsetRange], sizes: Sequence[int], max_bytes: int
) -> list[tuple[OffsetRange, ...]]:
    groups: list[list[OffsetRange]] = []
    left = 0
    for each, size in zip(splits, sizes, strict=True):
        if size > left:
            groups.append([])
            left = max_bytes
        groups[-1].append(each)
        left -= size
    return [tuple(group) for group in groups]


def _split_by_records(
    metadata: MetadataClient, ranges: Sequence[OffsetRange], limit: int
) -> list[OffsetRange]:
    """Divide ranges into splits of at most `limit` records."""
    return [piece for each in ranges for piece in _split_range_by_records(metadata, each, limit)]


def _split_range_by_records(
    metadata: MetadataClient, whole: OffsetRange, limit: int
) -> Iterator[OffsetRange]:
    at = whole.start
    while at < whole.end:
        [(end, _)] = metadata.advance([OffsetRange(whole.log, at, whole.end)], [limit])
        if not at < end < whole.end:
            end = whole.end
        yield OffsetRange(whole.log, at, end)
        at = end


def _split_counts(
    metadata: MetadataClient, options: ReadOptions, ranges: Sequence[OffsetRange]
) -> list[int]:
    """Return the number of splits of each range, by its size in bytes."""
    sizes = range_sizes(metadata, ranges)
    counts = [max(1, -(-size // options.split_bytes)) for size in sizes]
    least = options.min_partitions or 1
    total = sum(sizes)
    if sum(counts) < least and total:
        counts = [
            max(count, round(least * size / total))
            for count, size in zip(counts, sizes, strict=True)
        ]
    while sizes and sum(counts) < least:
        largest = max(range(len(counts)), key=lambda i: sizes[i] / counts[i])
        counts[largest] += 1
    return [min(count, MAX_SPLITS) for count in counts]


def range_sizes(metadata: MetadataClient, ranges: Sequence[OffsetRange]) -> list[int]:
    """Return the size of each range in bytes, with an error of about STEP_BYTES.

    Use only index rows inside a range: appends after it and trims below it must not change its
    splits. A stream's batch is divided again after a crash, and a writer identifies its tasks by
    their numbers.
    """
    commands: list[tuple[Any, ...]] = []
    for each in ranges:
        names = each.log.handle(metadata.keys)
        low, high = f"({each.start}", f"({each.end}"
        commands.append(("ZRANGEBYSCORE", names.index, low, high, "LIMIT", 0, 1))
        commands.append(("ZREVRANGEBYSCORE", names.index, high, low, "LIMIT", 0, 1))
        commands.append(("HGET", names.log, "local_start"))
    replies = metadata.store.commands(commands)
    remote = _bytes_in_segments(metadata, ranges, replies[2::3])
    return [
        # A trim between the two reads may remove the last row.
        max(0, _byte_position(last) - _byte_position(first)) + STEP_BYTES + left
        for first, last, left in zip(replies[::3], replies[1::3], remote, strict=True)
    ]


def _bytes_in_segments(
    metadata: MetadataClient, ranges: Sequence[OffsetRange], starts: Sequence[bytes | None]
) -> list[int]:
    """Return about how many bytes of each range left Redis; `starts` are the local starts."""
    edges = [each.local_edge(found) for each, found in zip(ranges, starts, strict=True)]
    if all(edge <= each.start for each, edge in zip(ranges, edges, strict=True)):
        return [0] * len(ranges)
    with metadata.open_segments() as reader:
        return [
            reader.bytes_in(each.log.handle(metadata.keys), each.start, edge)
            for each, edge in zip(ranges, edges, strict=True)
        ]


def _byte_position(members: list[bytes]) -> int:
    return int(members[0].split(b":")[2]) if members else 0


def _split_by_bytes(metadata: MetadataClient, whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Divide a range into about `count` splits of equal size by rows of the sparse index."""
    if count <= 1:
        return [whole]
    index = whole.log.handle(metadata.keys).index
    below = ("ZCOUNT", index, "-inf", whole.start)
    steps, low = metadata.store.commands(
        [("ZCOUNT", index, f"({whole.start}", f"({whole.end}"), below]
    )
    count = min(count, steps + 1)
    shares = [(steps + 1) * n // count - 1 for n in range(1, count)]
    while True:
        ranks = [low + share for share in shares]
        *found, then = metadata.store.commands([*(("ZRANGE", index, r, r) for r in ranks), below])
        if then == low:
            break
        low = then  # a trim shifted the ranks: read again
    cuts = sorted({int(member[0].split(b":")[0]) for member in found if member})
    edges = [whole.start, *(cut for cut in cuts if whole.start < cut < whole.end), whole.end]
    return [OffsetRange(whole.log, start, end) for start, end in pairwise(edges)]


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
