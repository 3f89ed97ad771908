"""Read one record: its page, the commands that show it, its download."""

from shlex import quote
from urllib.parse import urlsplit

import msgspec

from korvet.base.human import size
from korvet.console.avro import TopicAvro
from korvet.console.browse import large_at
from korvet.console.pages.records import RecordRow, format_of, parse_offsets, row_of
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
    commands: dict[str, str]
    """The commands that print it, by their programs."""
    previous_offset: int
    """-1 for none, and in modes in which it is not known without a search."""
    next_offset: int
    """-1 at the end."""
    may_delete: bool


async def find_record(
    visit: Visit, number: int | None = None, offset: int = 0
) -> tuple[Topic, StoredRecord, PartitionOffsets, int]:
    """Return a record, the ends of its partition and the offset after it.

    It is that of the path by default. What is read for it is charged to the user's quota.
    """
    topic = await find_topic(visit, Operation.READ)
    if number is None:
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
        commands=await _commands(visit, topic, number, record.offset),
        previous_offset=record.offset - 1 if is_dense and record.offset > ends.earliest else -1,
        next_offset=after,
        may_delete=topic.policy.delete,
    )


async def _commands(visit: Visit, topic: Topic, number: int, offset: int) -> dict[str, str]:
    """Return the commands that print a record."""
    brokers, _ = await visit.console.brokers()
    addresses = [f"{each.host}:{each.port}" for row in brokers for each in row.endpoints]
    name, base = topic.name, str(visit.request.base_url)
    user = f"-u {quote(visit.user)} " if visit.user else ""
    return {
        "redis-cli": redis_cli(visit, topic, number, offset),
        "korvet": f"korvet consume {name} --partition {number} --from {offset} --max 1",
        "kcat": f"kcat -C -b {''.join(addresses[:1])} -t {name} -p {number} -o {offset} -c 1 -J",
        "curl": f"curl {user}'{base}api/topics/{name}/partitions/{number}/records"
        f"?offset={offset}&max_bytes=1'",
    }


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


class ProduceForm(msgspec.Struct, frozen=True):
    """The partitions and the limit of a topic, and the fields of a record to send again."""

    topic: str
    partition_count: int
    max_message_bytes: int
    fields: dict[str, str]


async def load_produce(visit: Visit) -> ProduceForm:
    """Return the form of a topic that the user may write to, with the record of `again`."""
    topic = await find_topic(visit, Operation.WRITE)
    fields: dict[str, str] = {}
    if again := visit.query("again"):
        ((number, offset),) = parse_offsets("again", again.partition(",")[0]).items()
        _, record, _, _ = await find_record(visit, number, offset)
        fields = _fields(record)
    return ProduceForm(topic.name, topic.partitions, topic.policy.max_message_bytes, fields)


def _fields(record: StoredRecord) -> dict[str, str]:
    """Return a record as the fields of the form: text, or hex if a part is no UTF-8."""
    key, value = record.key or b"", record.value or b""
    headers = "\n".join(
        f"{name}: {(text or b'').decode('utf-8', 'replace')}" for name, text in record.headers
    )
    found = {"headers": headers} | ({"is_null": "1"} if record.value is None else {})
    try:
        return found | {"key": key.decode(), "value": value.decode()}
    except UnicodeDecodeError:
        return found | {"key": key.hex(), "value": value.hex(), "encoding": "hex"}
