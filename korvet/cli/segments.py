"""`korvet segments`: show and verify segment files without a broker, list a topic's segments."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.redis_target import store
from korvet.cli.table_output import progress
from korvet.config.setting import StartError
from korvet.remote_log.manifest import SegmentRow, object_name
from korvet.scripts.keys import Keys
from korvet.topics.table import decode_definition
from korvet.wire import records
from korvet.wire.segments import CorruptSegment, footer_size, headers_in, read_footer, read_segment

OBJECT = re.compile(r"\d{20}-[0-9a-f]+\.segment")
"""The name of an object in a store: a copy may have any other name."""
app = o.group()

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Segment files.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A segment file.")]


@o.command(app, "show")
def show(
    file: File,
    out: o.Output,
    batches: Annotated[
        bool, typer.Option("--batches", help="List the record batches in place of the header.")
    ] = False,
) -> None:
    """Print a segment's header, or its record batches.

    The footer is verified, the batches are not: `korvet segments verify` does that.
    """
    with _named(file):
        data = file.read_bytes()
        segment = read_footer(data[len(data) - min(footer_size(data), len(data)) :])
        rows = _batch_rows(memoryview(data)[: segment.header.bytes]) if batches else []
    if batches:
        columns = ("position", "first", "last", "records", "max_timestamp", "producer", "bytes")
        out.listing(columns, rows)
        return
    values = {
        **msgspec.to_builtins(segment.header),
        "chunks": len(segment.rows),
        "aborted": [row._asdict() for row in segment.aborted],
    }
    if out.json:
        table_output.document(values)
    else:
        table_output.table(("field", "value"), list(values.items()), header=out.header)


@o.command(app, "verify")
def verify(files: Files) -> None:
    """Verify checksums, offsets and names of segments. Exit code 1 if one is corrupt."""
    failed = False
    # On a terminal the lines below show how far it is.
    with progress("segments verified", len(files), shown=not sys.stdout.isatty()) as advance:
        for file in files:
            problems = _problems(file)
            failed = failed or bool(problems)
            for text in problems or ["ok"]:
                table_output.line(f"{file}: {text}")
            advance(1)
    if failed:
        raise typer.Exit(1)


def _batch_rows(batches: memoryview) -> list[table_output.Row]:
    return [
        (
            at,
            h.base_offset,
            h.base_offset + h.last_offset_delta,
            h.records,
            h.max_timestamp,
            h.producer_id,
            size,
        )
        for at, size, h in headers_in(batches)
    ]


def _problems(file: Path) -> Sequence[str]:
    """Return what is wrong with a segment; empty if it is as it was written."""
    try:
        segment, batches = read_segment(file.read_bytes())
        headers = list(headers_in(batches))
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]
    except CorruptSegment as error:
        return [str(error)]
    found, last = [], segment.header.first - 1
    for at, size, header in headers:
        if records.checksum(batches[at : at + size]) != header.crc:
            found.append(f"batch at offset {header.base_offset}: CRC differs")
        # The first batch may begin below the first offset.
        if header.base_offset + header.last_offset_delta <= last or (
            at and header.base_offset <= last
        ):
            found.append(f"batch at offset {header.base_offset} comes after offset {last}")
        last = header.base_offset + header.last_offset_delta
    if last != segment.header.last:
        found.append(f"ends at offset {last}, its header says {segment.header.last}")
    whose = segment.header
    partition_id = (whose.cluster_id, whose.topic_id, whose.partition)
    name = object_name(*partition_id, whose.first, whose.id).rpartition("/")[2]
    if OBJECT.fullmatch(file.name) and file.name != name:
        found.append(f"holds another segment: {name}, of {whose.topic}-{whose.partition}")
    return found


@o.command(app, "list")
def list_(topic: o.TopicName, target: o.Target, out: o.Output) -> None:
    """List the segments of a topic by the manifest in Redis."""
    keys, rows = Keys(target.namespace), []
    with store(target) as reached:
        raw = reached.command("HGET", keys.topics(), topic)
        if not isinstance(raw, bytes):
            raise StartError(f"There is no topic {topic!r}.")
        for partition in range(decode_definition(raw).partitions):
            found = reached.command("ZRANGE", keys.partition(topic, partition).segments, 0, -1)
            assert isinstance(found, list)
            for each in map(SegmentRow.parse, found):
                counts = (each.records, each.size, each.max_timestamp)
                rows.append((partition, each.first, each.last, *counts, each.id))
    columns = ("partition", "first", "last", "records", "bytes", "max_timestamp", "id")
    out.listing(columns, rows)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Raise StartError with the file's name if it cannot be read or is corrupt."""
    try:
        yield
    except OSError as error:
        raise StartError(f"{file}: {error.strerror}.") from None
    except CorruptSegment as error:
        raise StartError(f"{file}: {error}.") from None
