"""Bytes as a page shows them: decoded, and cut to a prefix."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from korvet.avro.decoder import Decoded
from korvet.avro.schema import AvroError

Decode = Callable[[bytes], Decoded | None]
NO_AVRO = "It does not begin as Avro with the id of a schema."
PREFIX_BYTES = 2_000
"""Bytes of a key or value in a list."""
DETAIL_BYTES = 64_000
"""Bytes of a key or value on a record's own page."""
FORMATS = {"auto": "auto", "text": "text", "json": "JSON", "avro": "Avro", "hex": "hex"}
"""The formats, and their names on a page."""


class Shown(msgspec.Struct, frozen=True):
    """A key, a value or a header; `text` is null for a null."""

    text: str | None
    format: str
    """`null`, `text`, `json`, `avro` (decoded to JSON) or `hex`; `large` if it was not read."""
    bytes: int
    is_cut: bool = False
    """Whether `text` is only the beginning."""
    note: str = ""
    """Why Avro is not decoded, else the schema of the registry."""


def show(
    data: bytes | None,
    how: str = "auto",
    limit: int = PREFIX_BYTES,
    *,
    indents: bool = False,
    decode: Decode | None = None,
) -> Shown:
    """Return the bytes as text in that format; `auto` is what they are.

    `indents`: JSON has lines. `decode` decodes Avro.
    """
    if data is None:
        return Shown(None, "null", 0)
    if decode is not None and how in ("auto", "avro"):
        found = _avro(data, how, limit, decode, indents=indents)
        if found is not None:
            return found
    part, is_cut = data[:limit], len(data) > limit
    if how == "hex":
        return Shown(_hex(part), "hex", len(data), is_cut)
    if how in ("auto", "json") and not is_cut and part[:1] in (b"{", b"["):
        try:
            formatted = msgspec.json.format(part, indent=2 if indents else 0)
            return Shown(formatted.decode(), "json", len(data))
        except (ValueError, RecursionError):
            pass
    text = _text(part, is_cut=is_cut)
    if how == "auto" and (text is None or not _is_printable(text)):
        return Shown(_hex(part), "hex", len(data), is_cut)
    return Shown(part.decode("utf-8", "replace"), "text", len(data), is_cut)


def _avro(data: bytes, how: str, limit: int, decode: Decode, *, indents: bool) -> Shown | None:
    """Return Avro as JSON, or as hex with the reason; None for other bytes."""
    try:
        found = decode(data)
    except AvroError as error:
        return Shown(_hex(data[:limit]), "hex", len(data), len(data) > limit, str(error))
    if found is None:
        if how == "auto":
            return None
        return Shown(_hex(data[:limit]), "hex", len(data), len(data) > limit, NO_AVRO)
    text = msgspec.json.format(found.json, indent=2 if indents else 0).decode()
    note = f"schema {found.schema_id}" if found.schema_id >= 0 else ""
    return Shown(text[:limit], "avro", len(data), len(text) > limit, note)


def _text(part: bytes, *, is_cut: bool) -> str | None:
    """Return UTF-8 as text, None for other bytes. A cut character at the end is left out."""
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(part) - 4:
            return part[: error.start].decode()
        return None


def _is_printable(text: str) -> bool:
    return all(char.isprintable() or char in "\t\r\n" for char in text[:1000])


def _hex(part: bytes) -> str:
    """Return lines of 16 bytes: offset, hex and ASCII, as `xxd` writes them."""
    lines = []
    for at in range(0, len(part), 16):
        row = part[at : at + 16]
        pairs = " ".join(row[i : i + 2].hex() for i in range(0, len(row), 2))
        letters = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"{at:06x}  {pairs:<39}  {letters}")
    return "\n".join(lines)


def value_of(data: bytes | None, decoded: Decoded | None = None) -> Any:
    """Return the value of JSON that the bytes are, or of decoded Avro; None for other bytes."""
    if decoded is not None:
        return decoded.value
    try:
        return None if data is None else msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None


def field_of(value: Any, path: Sequence[str]) -> str | None:
    """Return the field of a value of JSON as text; None if the value has no such field."""
    try:
        for name in path:
            value = value[int(name)] if isinstance(value, list) else value[name]
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
