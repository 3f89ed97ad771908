"""Formats of records with % codes, as kcat has them: `%k %s\\n`.

| Code | Is |
|---|---|
| `%t`, `%p`, `%o`, `%T` | topic, partition, offset, timestamp in ms |
| `%k`, `%K` | key, length of the key (-1: none) |
| `%s`, `%S` | value, length of the value (-1: none) |
| `%h` | headers as NAME=VALUE with commas between them |
| `%%`, `\\n`, `\\r`, `\\t`, `\\xNN` | these characters |
"""

import re
from collections.abc import Callable, Iterator, Sequence

from korvet.config.setting import StartError
from korvet.library.values import Record, StoredRecord

Part = bytes | Callable[[StoredRecord], bytes]
_TOKEN = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


def _length(value: bytes | None) -> bytes:
    return b"%d" % (-1 if value is None else len(value))


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return headers as kcat prints them; one without a value has no `=`."""
    return b",".join(
        name.encode() if value is None else b"%b=%b" % (name.encode(), value)
        for name, value in headers
    )


_CODES: dict[str, Callable[[StoredRecord], bytes]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "K": lambda record: _length(record.key),
    "s": lambda record: record.value or b"",
    "S": lambda record: _length(record.value),
    "h": lambda record: _headers(record.headers),
}
_PATTERNS = {"p": rb"\d+", "o": rb"-?\d+", "T": rb"-?\d+", "K": rb"-?\d+", "S": rb"-?\d+"}
"""What a code reads in a line, if that is not any text."""


def writer(text: str) -> Callable[[StoredRecord], bytes]:
    """Return a function that formats a record. Raises StartError for an unknown code."""
    parts: list[Part] = [part if isinstance(part, bytes) else _CODES[part] for part in _parse(text)]

    def write(record: StoredRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return write


def reader(text: str) -> Callable[[bytes, int], tuple[int | None, Record]]:
    """Return a function that reads a line, without its end, as a partition and a record.

    Topic, offset and lengths in a line are read and ignored. Raises StartError for a line that
    differs from the format.
    """
    parts = list(_parse(text))
    if parts and parts[-1] == b"\n":
        parts.pop()
    names = [part for part in parts if isinstance(part, str)]
    if len(set(names)) < len(names):
        raise StartError(f"The format {text!r} reads a part of a record twice.")
    pattern = re.compile(
        b"".join(
            re.escape(part)
            if isinstance(part, bytes)
            else b"(?P<%b>%b)" % (part.encode(), _PATTERNS.get(part, rb".*?"))
            for part in parts
        ),
        re.DOTALL,
    )

    def read(line: bytes, number: int) -> tuple[int | None, Record]:
        found = pattern.fullmatch(line)
        if found is None:
            raise StartError(f"Line {number} does not have the format {text!r}.")
        parts = found.groupdict()
        partition = parts.get("p")
        timestamp = int(parts["T"]) if "T" in parts else -1
        record = Record(
            parts.get("s"),
            parts.get("k"),
            list(_parse_headers(parts.get("h") or b"", number)),
            None if timestamp < 0 else timestamp,
        )
        return None if partition is None else int(partition), record

    return read


def _parse_headers(text: bytes, number: int) -> Iterator[tuple[str, bytes | None]]:
    for pair in text.split(b",") if text else ():
        name, equals, value = pair.partition(b"=")
        try:
            yield name.decode(), value if equals else None
        except UnicodeDecodeError:
            raise StartError(f"Line {number} has a header whose name is not UTF-8.") from None


def _parse(text: str) -> Iterator[bytes | str]:
    """Yield literal bytes, with adjacent ones joined, and the letters of codes."""
    literal, at = b"", 0
    for found in _TOKEN.finditer(text):
        literal += text[at : found.start()].encode()
        at = found.end()
        code, escape = found[1], found[2]
        if code in _CODES:
            if literal:
                yield literal
            yield code
            literal = b""
        elif code == "%":
            literal += b"%"
        elif escape and escape[0] == "x" and len(escape) == 3:
            literal += bytes.fromhex(escape[1:])
        elif escape in _ESCAPES:
            literal += _ESCAPES[escape]
        else:
            raise StartError(
                f"{found[0]!r} is no part of a format: there are "
                f"{', '.join('%' + each for each in _CODES)}, %%, \\n, \\r, \\t and \\xNN."
            )
    literal += text[at:].encode()
    if literal:
        yield literal
