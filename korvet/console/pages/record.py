"""Read one record: its page, the commands that show it, its download."""

from urllib.parse import urlsplit

import msgspec

from korvet.base.human import size
from korvet.console.avro import TopicAvro
from korvet.console.browse import large_at
from korvet.console.pages.records import RecordRow, format_of, row_of
from korvet.console.pages.topic import find_topic
from korvet.console.shown import DETAIL_BYTES
from korvet.console.visit import PageError, Visit
from korvet.library.record_lines import to_json
from korvet.library.values import PartitionOffsets, StoredRecord
from korvet.log.entry import entry_id
from korvet.security.acl import Operation
from korvet.topics.table import Topic

_BYTES = "application/octet-stream"


class OneRecord(msgspec.Struct, frozen=True):
    """A record, with the commands that show the same entry."""

    topic: str
    record: RecordRow
    redis_cli: str
    command: str
    """The command of korvet that prints it."""
    previous_offset: int
    """-1 for none, and in modes in which it is not known without a search."""
    next_offset: int
    """-1 at the end."""
    may_delete: bool


async def find_record(visit: Visit) -> tuple[Topic, StoredRecord, PartitionOffsets, int]:
    """Return the record of the path, the ends of its partition and the offset after it.

    What is read for it is charged to the user's quota.
    """
    topic = await find_topic(visit, Operation.READ)
    number, offset = int(visit.path["partition"]), int(visit.path["offset"])
    if number >= topic.partitions:
        raise PageError(404, f"{topic.name} has partitions 0 to {topic.partitions - 1}.")
    ends = (await visit.log.offsets(topic.name))[number]
    if not ends.earliest <= offset < ends.latest:
        raise PageError(
            404, f"Partition {number} has offsets from {ends.earliest} to {ends.latest - 1}."
        )
    large = await large_at(visit.log, topic.name, number, offset)
    if large is not None:
        raise PageError(
            413,
            f"The records from offset {offset} to {large.next_offset - 1} have {size(large.size)}, "
            "more than a page reads: use `korvet consume`.",
        )
    got = await visit.read(topic.name, number, offset, max_bytes=1)
    if not got.records or got.records[0].offset != offset:
        raise PageError(404, f"There is no record at offset {offset} of partition {number}.")
    after = got.records[1].offset if len(got.records) > 1 else got.next_offset
    return topic, got.records[0], ends, after if after < ends.latest else -1


async def load(visit: Visit) -> OneRecord:
    """Return one record."""
    topic, record, ends, after = await find_record(visit)
    number = record.partition
    avro = visit.console.avro.of(topic.name)
    await avro.prepare([record])
    is_dense = topic.policy.offset_mode == "dense"
    return OneRecord(
        topic=topic.name,
        record=row_of(record, avro, format_of(visit), DETAIL_BYTES, indents=True),
        redis_cli=redis_cli(visit, topic, number, record.offset),
        command=(
            f"korvet consume {topic.name} --partition {number} --from {record.offset} --max 1"
        ),
        previous_offset=record.offset - 1 if is_dense and record.offset > ends.earliest else -1,
        next_offset=after,
        may_delete=topic.policy.delete,
    )


def redis_cli(visit: Visit, topic: Topic, partition: int, offset: int) -> str:
    """Return the redis-cli command that shows the entry with the record."""
    stream = topic.partition(partition).stream
    first = entry_id(topic.policy.offset_mode, topic.policy.offset_bits, offset)
    # An entry of several records has the id of its last one.
    last = "+" if topic.is_batch else first
    words = f"XRANGE '{stream}' {first} {last}{' COUNT 1' if topic.is_batch else ''}"
    return f"redis-cli {_address(visit.services.config.redis or '')}{words}"


def _address(url: str) -> str:
    """Return the options of redis-cli for the server of a URL, without user and password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"-s {parts.path} "
    if not parts.scheme.startswith("redis") or "+sentinel" in parts.scheme:
        return ""  # the master of the Sentinels may change
    options = "--tls " if parts.scheme.startswith("rediss") else ""
    options += "-c " if "+cluster" in parts.scheme else ""
    host, _, port = parts.netloc.rpartition("@")[2].partition(",")[0].rpartition(":")
    name = host.strip("[]") or parts.hostname
    return f"{options}-h {name} -p {port if host else 6379} "


async def download(visit: Visit) -> tuple[bytes, str, str]:
    """Return the value, the key or the whole record as JSON, with media type and file name."""
    topic, record, _, _ = await find_record(visit)
    part = visit.query("part", "value")
    name = f"{topic.name}-{record.partition}-{record.offset}"
    if part == "json":
        avro = visit.console.avro.of(topic.name)
        await avro.prepare([record])
        return _encode(record, avro), "application/json", f"{name}.json"
    if part in ("key", "value"):
        data = (record.value if part == "value" else record.key) or b""
        return data, _BYTES, f"{name}.{part}"
    raise PageError(400, "part must be value, key or json.")


def _encode(record: StoredRecord, avro: TopicAvro) -> bytes:
    """Return the record as `korvet consume --format json` prints it."""
    decoded = {"key": avro.decode(record.key, is_key=True), "value": avro.decode(record.value)}
    return to_json(record, {name: each.value for name, each in decoded.items() if each is not None})
