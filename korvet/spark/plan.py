"""Cutting ranges into the pieces that tasks read: by bytes, by records, at least so many."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from korvet.keys import Keys
from korvet.spark.catalog import Catalog, Range
from korvet.spark.options import ReadOptions

MOST_PIECES = 10_000
MANY_PIECES = 64
"""A batch read of more, or a stream's batch of more partitions, has neighbours share a task: Spark
needs 15 to 60 ms for each task of a Python source, however little it reads."""
LEAST_TASKS = 32
"""So many tasks there are still then, for as many cores; `minPartitions` asks for more."""
STEP_BYTES = 64 << 10
"""The index has a row each so many bytes: about so much lies before and behind a range's own."""


def pieces(catalog: Catalog, options: ReadOptions, ranges: Sequence[Range]) -> list[Range]:
    """The ranges, cut as the options say. They follow one another without gap or overlap."""
    if options.max_records is not None:
        ranges = _by_records(catalog, ranges, options.max_records)
    wanted = _how_many(catalog, options, ranges)
    found = [
        piece
        for each, count in zip(ranges, wanted, strict=True)
        for piece in _by_bytes(catalog, each, count)
    ]
    least = min(options.min_partitions or 1, MOST_PIECES)
    if len(found) >= least:
        return found
    # The index has a row each 64 KiB, and these are smaller.
    return _by_records(catalog, found, max(1, sum(catalog.count(found)) // least))


def tasks(
    catalog: Catalog, options: ReadOptions, found: Sequence[Range]
) -> list[tuple[Range, ...]]:
    """The pieces of a batch read, by the task that reads them: neighbours together up to
    `split_bytes`, as many groups as are asked for."""
    # "At most so many records a task" holds where nobody asks for joined ones as well.
    few = len(found) <= MANY_PIECES or options.max_records is not None
    if options.joined is False or (options.joined is None and few):
        return [(each,) for each in found]
    sizes = bytes_in(catalog, found)
    least = 1 if options.joined else LEAST_TASKS
    least = min(options.min_partitions or least, len(found))
    most = min(options.split_bytes, sum(sizes) // max(1, least))
    while len(groups := _grouped(found, sizes, most)) < least:
        most //= 2
    return groups


def in_turn(options: ReadOptions, found: Sequence[Range]) -> list[tuple[Range, ...]]:
    """The pieces of a stream's batch, by the task that reads them: where they are joined, equally
    many neighbours together. How many there are says which, and not how large they are by now: a
    writer knows the tasks of a batch that is repeated by their numbers."""
    count = max(LEAST_TASKS, options.min_partitions or 0) if options.joined else len(found)
    edges = [len(found) * n // count for n in range(count + 1)] if found else []
    return [tuple(found[low:high]) for low, high in pairwise(edges) if low < high]


def joined_of_itself(catalog: Catalog, options: ReadOptions, ahead: Sequence[Range]) -> ReadOptions:
    """The options, with neighbours joined where a stream's batch has very many small ranges and
    nothing else was asked for: about `split_bytes` a task, as in a batch read."""
    if options.joined is not None or options.max_records is not None or len(ahead) <= MANY_PIECES:
        return options
    least = -(-sum(bytes_in(catalog, ahead)) // options.split_bytes)
    if least >= len(ahead):
        return options  # these are large: a task for each is none too many
    least = max(least, options.min_partitions or 0)
    wanted = least if least > LEAST_TASKS else options.min_partitions
    return msgspec.structs.replace(options, joined=True, min_partitions=wanted)


def _grouped(found: Sequence[Range], sizes: Sequence[int], most: int) -> list[tuple[Range, ...]]:
    groups: list[list[Range]] = []
    left = 0
    for each, size in zip(found, sizes, strict=True):
        if size > left:
            groups.append([])
            left = most
        groups[-1].append(each)
        left -= size
    return [tuple(group) for group in groups]


def _by_records(catalog: Catalog, ranges: Sequence[Range], most: int) -> list[Range]:
    """Pieces of at most so many records."""
    return [piece for each in ranges for piece in _runs(catalog, each, most)]


def _runs(catalog: Catalog, whole: Range, most: int) -> Iterator[Range]:
    at = whole.start
    while at < whole.end:
        [(end, _)] = catalog.advance([Range(whole.log, at, whole.end)], [most])
        if not at < end < whole.end:
            end = whole.end
        yield Range(whole.log, at, end)
        at = end


def _how_many(catalog: Catalog, options: ReadOptions, ranges: Sequence[Range]) -> list[int]:
    """Into how many pieces each range goes, by the bytes that it holds."""
    sizes = bytes_in(catalog, ranges)
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
    return [min(count, MOST_PIECES) for count in counts]


def bytes_in(catalog: Catalog, ranges: Sequence[Range]) -> list[int]:
    """How many bytes each range holds, to about one step of the index.

    Only rows of the index inside a range count: what is appended behind it later, or trimmed before
    it, must not change how it is cut. A stream's batch is cut again after a crash, and a writer
    knows its tasks by their numbers.
    """
    commands: list[tuple[Any, ...]] = []
    for each in ranges:
        index = catalog.keys.partition(each.log.topic, each.log.partition).index
        low, high = f"({each.start}", f"({each.end}"
        commands.append(("ZRANGEBYSCORE", index, low, high, "LIMIT", 0, 1))
        commands.append(("ZREVRANGEBYSCORE", index, high, low, "LIMIT", 0, 1))
    replies = catalog.store.commands(commands)
    return [
        # A trim between the two questions may leave no last one.
        max(0, _bytes(last) - _bytes(first)) + STEP_BYTES
        for first, last in zip(replies[::2], replies[1::2], strict=True)
    ]


def _bytes(members: list[bytes]) -> int:
    return int(members[0].split(b":")[2]) if members else 0


def _by_bytes(catalog: Catalog, whole: Range, count: int) -> list[Range]:
    """About `count` pieces of equal size: the index has a row each so many bytes."""
    if count <= 1:
        return [whole]
    index = Keys.partition(catalog.keys, whole.log.topic, whole.log.partition).index
    below = ("ZCOUNT", index, "-inf", whole.start)
    steps, low = catalog.store.commands(
        [("ZCOUNT", index, f"({whole.start}", f"({whole.end}"), below]
    )
    count = min(count, steps + 1)
    shares = [(steps + 1) * n // count - 1 for n in range(1, count)]
    while True:
        ranks = [low + share for share in shares]
        *found, then = catalog.store.commands([*(("ZRANGE", index, r, r) for r in ranks), below])
        if then == low:
            break
        low = then  # what was trimmed meanwhile has no rank any more
    cuts = sorted({int(member[0].split(b":")[0]) for member in found if member})
    edges = [whole.start, *(cut for cut in cuts if whole.start < cut < whole.end), whole.end]
    return [Range(whole.log, start, end) for start, end in pairwise(edges)]
