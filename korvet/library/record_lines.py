"""Records as lines of text or JSON; bytes that are not UTF-8 are base64 in JSON."""

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from korvet.config.broker_config import StartError
from korvet.library.values import Record, StoredRecord

NOTHING: Mapping[str, Any] = MappingProxyType({})
_ENCODER = msgspec.json.Encoder()


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """A record in JSON. Text is a string; other bytes are {"base64": "..."}.

    Any other JSON is its text.
    """

    value: msgspec.Raw = msgspec.Raw(b"null")
    key: msgspec.Raw = msgspec.Raw(b"null")
    headers: list[tuple[str, msgspec.Raw]] | dict[str, msgspec.Raw] = []
    timestamp: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None


_DECODER = msgspec.json.Decoder(Line)
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def to_json(record: StoredRecord, parts: Mapping[str, Any] = NOTHING) -> bytes:
    """Encode a record as one line of JSON that `from_json` reads.

    `parts` are values of JSON in place of the bytes of `key` and `value`.
    """
    line: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _encode(record.key),
        "value": _encode(record.value),
        **parts,
    }
    if record.headers:
        line["headers"] = [(name, _encode(value)) for name, value in record.headers]
    return _ENCODER.encode(line) + b"\n"


def from_json(text: bytes, number: int, parts: Collection[str] = ()) -> tuple[int | None, Record]:
    """Decode line `number`: the partition it names, or None, and its record.

    `parts` are those of `key` and `value` that may be any JSON, and become its text.
    """
    try:
        parsed = {}
        if parts:
            rows = _PARTS.decode(text)
            parsed = {name: _text(rows.pop(name)) for name in parts if name in rows}
            text = _ENCODER.encode(rows)
        line = _DECODER.decode(text)
        pairs = line.headers.items() if isinstance(line.headers, dict) else line.headers
        headers = [(name, _decode(each)) for name, each in pairs]
        negative = line.timestamp is not None and line.timestamp < 0
        timestamp = None if negative else line.timestamp
        value, key = _decode(line.value), _decode(line.key)
        return line.partition, Record(
            parsed.get("value", value), parsed.get("key", key), headers, timestamp
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise StartError(f"Line {number} is not a record in JSON: {error}.") from None


def from_text(text: bytes, separator: bytes | None) -> Record:
    """Make a line a record: the text up to the separator is the key, the rest the value."""
    if separator is None or separator not in text:
        return Record(text)
    key, _, value = text.partition(separator)
    return Record(value, key)


def _text(raw: msgspec.Raw) -> bytes | None:
    """Return JSON as it is written; None for null."""
    found = bytes(raw)
    return None if found == b"null" else found


def _encode(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _decode(raw: msgspec.Raw) -> bytes | None:
    """Return the bytes of a string or base64; the text of other JSON; None for null."""
    text = bytes(raw)
    if text.startswith(b'"'):
        return msgspec.json.decode(text, type=str).encode()
    if text.startswith(b"{") and b'"base64"' in text:
        found = msgspec.json.decode(text)
        if list(found) == ["base64"]:
            return b64decode(msgspec.convert(found["base64"], str), validate=True)
    return _text(raw)
