"""Bytes as a page shows them: decoded, and cut to a prefix."""

from collections.abc import Sequence

import msgspec

PREFIX_BYTES = 2_000
"""Bytes of a key or value in a list."""
DETAIL_BYTES = 64_000
"""Bytes of a key or value on a record's own page."""
FORMATS = ("auto", "text", "json", "hex")


class Shown(msgspec.Struct, frozen=True):
    """A key, a value or a header; `text` is null for a null."""

    text: str | None
    format: str
    """`null`, `text`, `json` or `hex`; `large` if it was not read."""
    bytes: int
    is_cut: bool = False
    """Whether `text` is only the beginning."""


def show(
    held: bytes | None, how: str = "auto", limit: int = PREFIX_BYTES, *, indents: bool = False
) -> Shown:
    """Return the bytes as text in that format; `auto` is JSON, text or hex, whatever they are.

    `indents`: JSON has lines.
    """
    if held is None:
        return Shown(None, "null", 0)
    part, is_cut = held[:limit], len(held) > limit
    if how == "hex":
        return Shown(_hex(part), "hex", len(held), is_cut)
    if how in ("auto", "json") and not is_cut and part[:1] in (b"{", b"["):
        try:
            formatted = msgspec.json.format(part, indent=2 if indents else 0)
            return Shown(formatted.decode(), "json", len(held))
        except (msgspec.DecodeError, RecursionError):
            pass
    text = _text(part, is_cut=is_cut)
    if how == "auto" and (text is None or not _is_printable(text)):
        return Shown(_hex(part), "hex", len(held), is_cut)
    return Shown(part.decode("utf-8", "replace"), "text", len(held), is_cut)


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


def field_of(value: bytes | None, path: Sequence[str]) -> str | None:
    """Return the field of a JSON value as text; None if the value has no such field."""
    if value is None:
        return None
    try:
        found = msgspec.json.decode(value)
        for name in path:
            found = found[int(name)] if isinstance(found, list) else found[name]
    except (msgspec.DecodeError, RecursionError, KeyError, IndexError, TypeError, ValueError):
        return None
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()
