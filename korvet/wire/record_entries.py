"""The `record` layout: one record as the fields and values of one stream entry.

key, value            the bytes; a missing field is null, an empty one is empty
timestamp             ms as decimal text
header.<name>         a header's value; headers may repeat, and their order is the fields' order
null.header.<name>    a header whose value is null
value.<codec>         instead of `value`: the bytes compressed at rest (storage.compression)
append.time           ms as decimal text, of a topic with message.timestamp.type=LogAppendTime
transaction           first, if present: the producer id of the record's transaction

Unknown fields are ignored. `redis-cli XADD stream '*' key k value v` is a whole record.
"""

from collections.abc import Sequence

from korvet.base.errors import ErrorCode
from korvet.wire import compression
from korvet.wire.records import BadBatch, Buffer, Headers, Record, invalid

MAX_HEADERS = 1000
"""Max headers of a record: Lua's stack bounds the fields of one XADD."""
MAX_FIELDS = 1_000_000
"""Max names and values of a batch's records together.

Redis 6.2 closes a connection that sends a command of more than 2^20 arguments.
"""
MAX_STORED_VALUE = 2**30
OVERHEAD = 24
"""Approximate bytes of an entry without its key, value and headers."""

_AT_REST = {
    f"value.{name}".encode(): codec for codec, name in enumerate(compression.NAMES) if codec
}
_FIELD_AT_REST = {codec: field for field, codec in _AT_REST.items()}


def fields_of(
    records: Sequence[Record],
    *,
    codec: int = compression.NONE,
    threshold: int = 0,
    producer_id: int | None = None,
) -> list[Buffer | int]:
    """Return the records as log.append's `fields`.

    Each record has names and values; if all records have the same names and no value is left to
    compress, the names come once. Values longer than `threshold` bytes are compressed if that makes
    them shorter. A `producer_id` marks all records as part of that producer's transaction. Raises
    BadBatch: INVALID_RECORD for a record with too many headers, MESSAGE_TOO_LARGE for more than
    MAX_FIELDS.
    """
    if producer_id is None:
        uniform = _uniform(records, threshold if codec else MAX_STORED_VALUE)
        if uniform is not None:
            return uniform
    out: list[Buffer | int] = []
    head = (0,) if producer_id is None else (0, b"transaction", b"%d" % producer_id)
    for _, timestamp, key, value, headers in records:
        mark = len(out)
        out += head
        if key is not None:
            out += (b"key", key)
        if value is not None:
            if codec and len(value) > threshold:
                out += _value_field(value, codec)
            else:
                out += (b"value", value)
        out += (b"timestamp", b"%d" % timestamp)
        if headers:
            _put_headers(out, headers)
        out[mark] = len(out) - mark - 1
        if len(out) > MAX_FIELDS:
            raise BadBatch(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"A batch of {len(records)} records with headers: {MAX_FIELDS} names and values can"
                " be taken here.",
            )
    return out


def _uniform(records: Sequence[Record], longest: int) -> list[Buffer | int] | None:
    """Return the names once and every record's values, or None if the records differ.

    All have a value of at most `longest` bytes and no headers, and all or none have a key.
    """
    keyed = records[0][2] is not None
    out: list[Buffer | int] = [-3, b"key"] if keyed else [-2]
    out += (b"value", b"timestamp")
    for _, timestamp, key, value, headers in records:
        if headers or value is None or len(value) > longest or (key is not None) != keyed:
            return None
        if keyed:
            out += (key, value, timestamp)  # type: ignore[arg-type]
        else:
            out += (value, timestamp)
    return out


def _value_field(value: bytes, codec: int) -> tuple[bytes, bytes]:
    packed = compression.compress(codec, value)
    return (_FIELD_AT_REST[codec], packed) if len(packed) < len(value) else (b"value", value)


def _put_headers(out: list[Buffer | int], headers: Headers) -> None:
    if len(headers) > MAX_HEADERS:
        raise invalid(f"{len(headers)} headers: a record of layout `record` takes {MAX_HEADERS}")
    for name, value in headers:
        if value is None:
            out += (b"null.header." + name.encode(), b"")
        else:
            out += (b"header." + name.encode(), value)


def record_of(offset: int, milliseconds: int, fields: Sequence[bytes]) -> Record:
    """Return the record of an entry.

    Its time is the append time if the topic stamps entries, else its timestamp field, else
    `milliseconds`.
    """
    key: bytes | None = None
    value: bytes | None = None
    timestamp = milliseconds
    headers: Headers = []
    for i in range(0, len(fields), 2):
        name = fields[i]
        if name == b"value":
            value = fields[i + 1]
        elif name == b"key":
            key = fields[i + 1]
        elif name == b"timestamp":
            timestamp = _number(fields[i + 1], timestamp)
        elif name.startswith(b"header."):
            headers.append((name[7:].decode("utf-8", "replace"), fields[i + 1]))
        elif name.startswith(b"null.header."):
            headers.append((name[12:].decode("utf-8", "replace"), None))
        elif name in _AT_REST:
            value = unpacked(name, fields[i + 1])
    if fields and fields[0] == b"append.time":
        timestamp = _number(fields[1], 0)
    return offset, timestamp, key, value, headers


def decompressed(fields: list[bytes]) -> list[bytes]:
    """Return the fields with every value decompressed; the same list if none is compressed."""
    if (len(fields) > 3 and fields[-4] == b"value") or _AT_REST.keys().isdisjoint(fields[::2]):
        return fields
    out = fields.copy()
    for i in range(0, len(out), 2):
        if out[i] in _AT_REST:
            out[i : i + 2] = b"value", unpacked(out[i], out[i + 1])
    return out


def compressed(fields: list[bytes], codec: int, threshold: int) -> list[bytes]:
    """Return the fields with a longer value compressed at rest; the same list if none is."""
    if codec == compression.NONE or max(map(len, fields)) <= threshold:
        return fields
    out = fields.copy()
    for i in range(0, len(out), 2):
        if out[i] == b"value" and len(out[i + 1]) > threshold:
            out[i : i + 2] = _value_field(out[i + 1], codec)
    return out


def append_time_of(fields: Sequence[bytes]) -> int | None:
    """Return the entry's append time if its topic stamps entries; the field is always the first."""
    if fields and fields[0] == b"append.time":
        return _number(fields[1], 0)
    return None


def _number(text: bytes, otherwise: int) -> int:
    """XADD may have stored anything here; a value that is no 64-bit number is not a time."""
    try:
        number = int(text)
    except ValueError:
        return otherwise
    return number if -(2**63) <= number < 2**63 else otherwise


def unpacked(name: bytes, packed: bytes) -> bytes:
    try:
        return bytes(compression.decompress(_AT_REST[name], packed, MAX_STORED_VALUE))
    except (compression.CorruptPayload, compression.PayloadTooLarge):
        return packed  # an entry of another writer that uses the name: its bytes are the value
