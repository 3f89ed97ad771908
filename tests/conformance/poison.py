"""Batches with a correct CRC that a broker should not store, and Kafka's answers to them.

    python -m tests.conformance.poison HOST:PORT

sends every batch to an empty Apache Kafka 4.3 and writes the error codes to poison.json.
"""

import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import cramjam
import crc32c
import msgspec

from korvet.wire import compression, records
from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.raw_client import Peer, to_produce

ANSWERS = Path(__file__).with_name("poison.json")
PRODUCE = 9
"""The Produce version of the table: the newest that names topics."""
NO_ANSWER = -2
NOT_LEADER = 6
"""Kafka's error code for a topic that it is still creating."""
NOW_MS = 1_700_000_000_000
COUNT = 3
Edit = Callable[[bytes], bytes]


def varint(number: int, *, width: int = 0) -> bytes:
    """Return the zigzag varint; `width` pads it to that many bytes."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F or len(found) + 1 < width:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*found, left))


def field(content: bytes | None, length: bytes | None = None) -> bytes:
    """Return a field after its length, which may be wrong."""
    if length is None:
        length = varint(-1 if content is None else len(content))
    return length + (content or b"")


def record(
    at: int = 0,
    *,
    attributes: int = 0,
    time: bytes = b"\0",
    delta: bytes | None = None,
    key: bytes | None = None,
    value: bytes | None = None,
    headers: bytes = b"\0",
    length: bytes | None = None,
    surplus: int = 0,
) -> bytes:
    """Return one record; each argument is its encoded part."""
    body = bytes((attributes,)) + time
    body += varint(at) if delta is None else delta
    body += field(b"key") if key is None else key
    body += field(b"value-%d" % at) if value is None else value
    body += headers
    return (varint(len(body) + surplus) if length is None else length) + body


def pair(key: bytes, value: bytes) -> bytes:
    """Return one header's bytes, its count first."""
    return varint(1) + key + value


def three(**last: object) -> bytes:
    """Return three records, the second one changed."""
    changed = record(1, **last)  # type: ignore[arg-type]
    return record(0) + changed + record(2)


def deltas(*offsets: int) -> bytes:
    """Return one record for each offset delta."""
    return b"".join(record(0, delta=varint(at)) for at in offsets)


SOUND = deltas(*range(COUNT))
NAME, CONTENT = field(b"name"), field(b"content")

BODIES: dict[str, bytes] = {
    "sound": SOUND,
    "sound with headers": three(headers=pair(NAME, CONTENT)),
    "sound without key and value": three(key=field(None), value=field(None)),
    "sound with an empty header": three(headers=pair(field(b""), field(None))),
    "fewer records than the header says": deltas(0, 1),
    "one record of three": deltas(0),
    "more records than the header says": deltas(0, 1, 2, 3),
    "no record": b"",
    "trailing bytes": SOUND + b"trailing",
    "a trailing zero": SOUND + b"\0",
    "only zeros": bytes(64),
    "a cut last record": SOUND[:-3],
    "a cut header count": SOUND[:-1],
    "a cut last length": SOUND[: -len(record(0))] + b"\x80",
    "a record longer than the batch": three(length=varint(4000)),
    "a record of the maximal length": three(length=varint(2**31 - 1)),
    "a last record longer than the batch": deltas(0, 1) + record(2, surplus=1),
    "a record too long by one": three(surplus=1),
    "a record too short by one": three(surplus=-1),
    "a record of negative length": three(length=varint(-5)),
    "a record of length 0": three(length=varint(0)),
    "a length of six bytes": three(length=b"\x80\x80\x80\x80\x80\x01"),
    "a length of ten bytes": three(length=b"\xff" * 9 + b"\x01"),
    "a padded length": three(length=varint(len(record(1)) - 1, width=5)),
    "attributes in a record": three(attributes=0x7F),
    "attributes above 127 in a record": three(attributes=0x80),
    "a timestamp of eleven bytes": three(time=b"\x80" * 10 + b"\x01"),
    "a padded timestamp": three(time=varint(1, width=10)),
    "a timestamp below -1": three(time=varint(-NOW_MS - 5000)),
    "a timestamp above the header's": three(time=varint(3_600)),
    "a timestamp that overflows": three(time=varint(2**63 - 1)),
    "equal offset deltas": deltas(0, 0, 0),
    "offset deltas with gaps": deltas(0, 2, 4),
    "descending offset deltas": deltas(2, 1, 0),
    "a negative offset delta": deltas(-1, 1, 2),
    "an offset delta above the last": deltas(0, 1, 9),
    "a padded offset delta": three(delta=varint(1, width=5)),
    "an offset delta of six bytes": three(delta=b"\x82\x80\x80\x80\x80\x00"),
    "a padded key length": three(key=field(b"key", varint(3, width=5))),
    "a key longer than the record": three(key=field(b"key", varint(200))),
    "a key of the maximal length": three(key=field(b"key", varint(2**31 - 1))),
    "a key of negative length": three(key=field(b"", varint(-2))),
    "a key length of six bytes": three(key=field(b"key", b"\x86\x80\x80\x80\x80\x00")),
    "a value longer than the record": three(value=field(b"value", varint(200))),
    "a value one byte too long": three(value=field(b"value", varint(6))),
    "a value of negative length": three(value=field(b"", varint(-2))),
    "no header count": three(headers=b""),
    "a negative header count": three(headers=varint(-1)),
    "a maximal header count": three(headers=varint(2**31 - 1)),
    "more headers than said": three(headers=pair(NAME, CONTENT) + NAME + CONTENT),
    "fewer headers than said": three(headers=varint(2) + NAME + CONTENT),
    "a header without name": three(headers=pair(field(None), CONTENT)),
    "a header name longer than the record": three(headers=pair(varint(99), CONTENT)),
    "a header name that is no UTF-8": three(headers=pair(field(b"\xff\xfe"), CONTENT)),
    "a header value longer than the record": three(headers=pair(NAME, varint(99))),
    "a header value of negative length": three(headers=pair(NAME, varint(-2))),
}
"""The records of a batch, before compression."""

HEADERS: dict[str, dict[str, int]] = {
    "header: no record": {"records": 0},
    "header: negative count": {"records": -1},
    "header: count below the last delta": {"records": 2},
    "header: count above the last delta": {"records": 4},
    "header: maximal count": {"records": 2**31 - 1, "last_offset_delta": 2**31 - 2},
    "header: last delta too high": {"last_offset_delta": 9},
    "header: last delta negative": {"last_offset_delta": -1},
    "header: base offset": {"base_offset": 7},
    "header: negative base offset": {"base_offset": -1},
    "header: leader epoch": {"leader_epoch": 9},
    "header: magic 3": {"magic": 3},
    "header: negative magic": {"magic": -1},
    "header: unused attributes": {"attributes": 0x7F80},
    "header: delete horizon": {"attributes": 0x40},
    "header: control batch": {"attributes": records.CONTROL},
    "header: LogAppendTime": {"attributes": records.LOG_APPEND_TIME},
    "header: max timestamp too low": {"max_timestamp": 5},
    "header: max timestamp too high": {"max_timestamp": NOW_MS + 60_000},
    "header: first timestamp -1": {"first_timestamp": -1},
    "header: first timestamp negative": {"first_timestamp": -7, "max_timestamp": -7},
    "header: producer without epoch": {"producer_id": 5, "base_sequence": 0},
    "header: producer without sequence": {"producer_id": 5, "producer_epoch": 0},
}
"""Fields of the header; the records are sound."""


def _lz4(data: bytes, **options: bool) -> bytes:
    compressor = cramjam.lz4.Compressor(level=0, **options)
    compressor.compress(data)
    return bytes(compressor.finish())


def _flipped(at: int) -> Edit:
    def edit(section: bytes) -> bytes:
        found = bytearray(section)
        found[at] ^= 0x55
        return bytes(found)

    return edit


SECTIONS: dict[str, Edit] = {
    "section: garbage": lambda _: bytes(range(7, 107)),
    "section: zeros": lambda _: bytes(100),
    "section: empty": lambda _: b"",
    "section: one byte": lambda section: section[:1],
    "section: half": lambda section: section[: len(section) // 2],
    "section: cut by one byte": lambda section: section[:-1],
    "section: trailing bytes": lambda section: section + b"trailing",
    "section: uncompressed": lambda _: SOUND,
    "section: damaged at its end": _flipped(-1),
    "section: damaged at its start": _flipped(0),
    "section: damaged in the middle": lambda section: _flipped(len(section) // 2)(section),
}
"""Changes of a compressed section."""

FRAMES: dict[str, tuple[str, bytes]] = {
    "section: two gzip members": (
        "gzip",
        compression.compress(compression.GZIP, SOUND[:20])
        + compression.compress(compression.GZIP, SOUND[20:]),
    ),
    "section: two zstd frames": (
        "zstd",
        compression.compress(compression.ZSTD, SOUND[:20])
        + compression.compress(compression.ZSTD, SOUND[20:]),
    ),
    "section: two lz4 frames": ("lz4", _lz4(SOUND[:20]) + _lz4(SOUND[20:])),
    "section: linked lz4 blocks": ("lz4", _lz4(SOUND, block_linked=True)),
    "section: lz4 content checksum": (
        "lz4",
        _lz4(SOUND, block_linked=False, content_checksum=True),
    ),
    "section: damaged lz4 content checksum": (
        "lz4",
        _flipped(-1)(_lz4(SOUND, block_linked=False, content_checksum=True)),
    ),
    "section: bare snappy": ("snappy", bytes(cramjam.snappy.compress_raw(SOUND))),
    "section: cut bare snappy": ("snappy", bytes(cramjam.snappy.compress_raw(SOUND))[:-2]),
    "section: snappy frames": ("snappy", bytes(cramjam.snappy.compress(SOUND))),
    "section: gzip read as zstd": ("zstd", compression.compress(compression.GZIP, SOUND)),
    "section: lz4 read as snappy": ("snappy", _lz4(SOUND, block_linked=False)),
}
"""Compressed sections that only one codec has, with the codec of the header."""


def sealed(section: bytes, codec: int, **fields: int) -> bytes:
    """Return the batch of these bytes with a correct length and CRC."""
    attributes = codec | fields.pop("attributes", 0)
    header = records.BatchHeader(
        base_offset=0,
        length=records.HEADER_SIZE - records.LOG_OVERHEAD + len(section),
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=COUNT - 1,
        first_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=COUNT,
    )._replace(**fields)
    found = bytearray(records.HEADER.pack(*header) + section)
    struct.pack_into(">I", found, 17, crc32c.crc32c(found[records.ATTRIBUTES_AT :]))
    return bytes(found)


def rows() -> Iterator[tuple[str, str, bytes]]:
    """Yield (case, codec, batch) of the table."""
    for codec, name in enumerate(compression.NAMES):
        for case, body in BODIES.items():
            yield case, name, sealed(compression.compress(codec, body), codec)
        section = compression.compress(codec, SOUND)
        for case, fields in HEADERS.items():
            yield case, name, sealed(section, codec, **fields)
        if codec:
            for case, edit in SECTIONS.items():
                yield case, name, sealed(edit(section), codec)
    for case, (name, section) in FRAMES.items():
        yield case, name, sealed(section, compression.BY_NAME[name])
    for codec in (5, 6, 7):
        yield f"header: codec {codec}", "none", sealed(SOUND, codec)


def read() -> dict[str, dict[str, int]]:
    """Return the recorded error codes: case to codec to code."""
    found: dict[str, dict[str, int]] = msgspec.json.decode(ANSWERS.read_bytes())
    return found


def record_answers(address: str) -> dict[str, dict[str, int]]:
    """Return the error code of each batch; each has its own topic."""
    found: dict[str, dict[str, int]] = {}
    table = list(rows())
    with Peer(address) as peer:
        topics = [
            CreatableTopic(
                name=f"r{at}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            for at in range(len(table))
        ]
        peer.ask("CreateTopics", 5, CreateTopicsRequest(topics=topics, timeout_ms=60_000))
    for at, (case, codec, batch) in enumerate(table):
        found.setdefault(case, {})[codec] = _answer(address, f"r{at}", batch)
    return found


def _answer(address: str, topic: str, batch: bytes) -> int:
    with Peer(address) as peer:
        try:
            code = NOT_LEADER
            while code == NOT_LEADER:
                response = peer.ask("Produce", PRODUCE, to_produce(topic, batch))
                code = response.responses[0].partition_responses[0].error_code
        except (EOFError, TimeoutError):
            return NO_ANSWER
    return code


def _write(found: dict[str, dict[str, int]]) -> None:
    lines = [f" {_text(case)}: {_text(codes)}" for case, codes in found.items()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


if __name__ == "__main__":
    _write(record_answers(sys.argv[1]))
