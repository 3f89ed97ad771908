"""Records as lines: plain text for people, JSON for programs; bytes that are no text as base64."""

from base64 import b64decode, b64encode
from typing import Annotated, Any

import msgspec

from korvet.config.broker_config import StartError
from korvet.wire.records import Headers, Record

_ENCODER = msgspec.json.Encoder()


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """A record as JSON says it. A text is itself; other bytes are {"base64": "..."}."""

    value: str | dict[str, str] | None = None
    key: str | dict[str, str] | None = None
    headers: list[tuple[str, str | dict[str, str] | None]] = []
    timestamp: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None


_DECODER = msgspec.json.Decoder(Line)


def to_json(topic: str, partition: int, record: Record) -> bytes:
    """The record as one line of JSON that `from_json` understands."""
    offset, timestamp, key, value, headers = record
    line: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": _shown(key),
        "value": _shown(value),
    }
    if headers:
        line["headers"] = [(name, _shown(held)) for name, held in headers]
    return _ENCODER.encode(line) + b"\n"


def from_json(text: bytes, number: int) -> tuple[int | None, Record]:
    """The partition a line asks for and its record, offset 0 and timestamp -1 where it has none."""
    try:
        line = _DECODER.decode(text)
        headers: Headers = [(name, _meant(held)) for name, held in line.headers]
        timestamp = -1 if line.timestamp is None else line.timestamp
        return line.partition, (0, timestamp, _meant(line.key), _meant(line.value), headers)
    except (msgspec.DecodeError, ValueError) as error:
        raise StartError(f"Line {number} is no record in JSON: {error}.") from None


def from_text(text: bytes, separator: bytes | None) -> Record:
    """A line as a record: all of it the value, or what stands before the separator the key."""
    if separator is None or separator not in text:
        return 0, -1, None, text, []
    key, _, value = text.partition(separator)
    return 0, -1, key, value, []


def _shown(held: bytes | None) -> str | dict[str, str] | None:
    if held is None:
        return None
    try:
        return held.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(held).decode()}


def _meant(held: str | dict[str, str] | None) -> bytes | None:
    if held is None or isinstance(held, str):
        return None if held is None else held.encode()
    if list(held) != ["base64"]:
        raise ValueError('bytes are a text, null or {"base64": "..."}')
    return b64decode(held["base64"], validate=True)
