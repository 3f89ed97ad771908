"""Check request and response headers: their version for each API version, and their bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.wire.headers import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
    is_flexible,
    request_header_version,
    response_header_version,
)
from korvet.wire.primitives import MalformedRequest
from tests.support.wire_client import decode_response_header, encode_request_header
from tests.wire.values import CLASSES


def test_the_table_of_flexible_versions_is_that_of_the_messages() -> None:
    for cls in CLASSES:
        info = cls.__message__
        for version in range(info.versions[0], info.versions[1] + 1):
            expected = info.is_flexible(version)
            assert is_flexible(info.key, version) is expected, (info.name, version)


@pytest.mark.parametrize(
    ("key", "version", "request_version", "response_version"),
    [
        (0, 8, 1, 0),
        (0, 9, 2, 1),
        (3, 0, 1, 0),
        (18, 0, 1, 0),
        (18, 3, 2, 0),
        (18, 99, 2, 0),
        (17, 1, 1, 0),
        (47, 0, 1, 0),
        (60, 0, 2, 1),
        (7, 0, 0, 0),
        (7, 1, 1, 0),
        (999, 0, 2, 1),
        (-1, 0, 1, 0),
    ],
)
def test_each_api_version_has_its_header_versions(
    key: int, version: int, request_version: int, response_version: int
) -> None:
    assert request_header_version(key, version) == request_version
    assert response_header_version(key, version) == response_version


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (RequestHeader(3, 1, 7, "abc"), "0003 0001 00000007 0003 616263"),
        (RequestHeader(3, 1, 7, None), "0003 0001 00000007 ffff"),
        (RequestHeader(3, 1, 7, ""), "0003 0001 00000007 0000"),
        (RequestHeader(3, 9, -1, "abc"), "0003 0009 ffffffff 0003 616263 00"),
        (RequestHeader(7, 0, 5), "0007 0000 00000005"),
    ],
)
def test_a_request_header_and_its_bytes_convert_both_ways(header: RequestHeader, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_request_header(header) == data
    assert decode_request_header(data + b"rest") == (header, len(data))
    assert decode_request_header(memoryview(b"..." + data), 3) == (header, len(data) + 3)
    for end in range(len(data)):
        with pytest.raises(MalformedRequest):
            decode_request_header(data[:end])


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    data = bytes.fromhex("0003 0009 00000001 ffff 02 00 01 ff 07 00")
    assert decode_request_header(data) == (RequestHeader(3, 9, 1, None), len(data))


def test_more_tagged_fields_than_any_header_has_are_refused() -> None:
    data = bytes.fromhex("0003 0009 00000001 ffff 91a10f") + bytes(2 * 250_001)
    with pytest.raises(MalformedRequest, match="more elements than any request has"):
        decode_request_header(data)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0003 0001 00000007 fffe", "header: a client id of -2 bytes"),
        ("0003 0009 00000007 ffff 01 00 7f", "tagged field 0 claims 127 bytes"),
    ],
)
def test_a_broken_request_header_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MalformedRequest, match=reason):
        decode_request_header(bytes.fromhex(text))


def test_a_client_id_that_is_not_utf_8_is_taken_as_java_takes_it() -> None:
    data = bytes.fromhex("0003 0001 00000007 0003 67 fc 6e")
    assert decode_request_header(data) == (RequestHeader(3, 1, 7, "g\ufffdn"), len(data))


def test_response_headers_are_short() -> None:
    assert encode_response_header(3, 8, 258) == bytes.fromhex("00000102")
    assert encode_response_header(3, 9, 258) == bytes.fromhex("0000010200")
    assert encode_response_header(18, 4, 258) == bytes.fromhex("00000102")
    assert decode_response_header(3, 9, bytes.fromhex("00000102 01 05 01 61 ff")) == (258, 8)
    for broken in ("0000", "00000102", "00000102 01 05 7f"):
        with pytest.raises(MalformedRequest):
            decode_response_header(3, 9, bytes.fromhex(broken))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_malformed(data: bytes) -> None:
    try:
        header, end = decode_request_header(data)
    except MalformedRequest:
        return
    assert end <= len(data)
    assert encode_request_header(header)[:8] == data[:8]
