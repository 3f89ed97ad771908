"""Check the codecs against bytes written by hand, field by field."""

import pytest

from korvet.wire.layout import Message
from korvet.wire.messages.fetch import FetchResponse
from korvet.wire.schema import decode, encode
from tests.wire.golden_requests import REQUESTS
from tests.wire.golden_responses import RESPONSES

GOLDEN = [*REQUESTS, *RESPONSES]


def raw(text: str) -> bytes:
    """Decode hexadecimal; text in quotes is taken literally."""
    parts = text.replace("\n", " ").split("'")
    return b"".join(
        part.encode() if odd else bytes.fromhex(part)
        for part, odd in zip(parts, [False, True] * len(parts), strict=False)
    )


@pytest.mark.parametrize(
    ("value", "version", "text"),
    GOLDEN,
    ids=[f"{type(value).__name__}-v{version}" for value, version, _ in GOLDEN],
)
def test_a_value_and_its_bytes_convert_both_ways(value: Message, version: int, text: str) -> None:
    assert encode(value, version).hex(" ") == raw(text).hex(" ")
    again = decode(type(value), raw(text), version)
    assert encode(again, version) == raw(text)
    if not isinstance(value, FetchResponse):  # its records may be given as several buffers
        assert again == value
