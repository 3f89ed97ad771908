"""Check `korvet segments`: it shows and verifies files without a broker."""

import json
from pathlib import Path

import pytest

from korvet.cli import run
from korvet.wire.records import read_header
from korvet.wire.segment_writer import SegmentWriter
from tests.lua.partition import Part
from tests.support.redis_servers import TestServer
from tests.support.store_runners import StoreRunner
from tests.wire.test_segments import HEADER, batch, written


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one.segment"
    path.write_bytes(written())
    return path


def test_the_header_is_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["segments", "show", "--json", str(file)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["topic"], shown["first"], shown["last"], shown["chunks"]) == (
        "orders",
        100,
        129,
        1,
    )
    assert shown["aborted"][0]["producer_id"] == 7
    assert run(["segments", "show", "--batches", str(file)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_corrupt_file_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["segments", "verify", str(file)]) == 0
    bad = file.with_name("bad")
    data = bytearray(file.read_bytes())
    data[5] ^= 1
    bad.write_bytes(data)
    assert run(["segments", "verify", str(file), str(bad)]) == 1
    out = capsys.readouterr().out
    assert "one.segment: ok" in out and "bad: offsets 100 to 129 of orders-3" in out
    data[8:12] = (-12).to_bytes(4, "big", signed=True)
    bad.write_bytes(data)
    assert run(["segments", "show", "--batches", str(bad)]) == 2
    assert "no record batch at position 0" in capsys.readouterr().err
    assert run(["segments", "show", str(file.with_name("none"))]) == 2
    file.write_bytes(b"no segment at all, but long enough")
    assert run(["segments", "show", str(file)]) == 2
    assert run(["segments", "verify", str(file)]) == 1


def test_a_file_with_right_checksums_of_what_is_no_batch_is_named(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = bytes(batch(100))
    writer = SegmentWriter(100)
    writer.add_run(whole + b"x" * 70, [(0, len(whole) + 70, read_header(whole))])
    bad = file.with_name("bad")
    bad.write_bytes(b"".join(writer.finish(HEADER, [])))
    assert run(["segments", "verify", str(bad), str(file)]) == 1
    out = capsys.readouterr().out
    assert f"{bad}: no record batch at position {len(whole)}" in out and f"{file}: ok" in out


def test_a_file_under_the_name_of_another_segment_is_named(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = [file.with_name(f"{first:020d}-abc.segment") for first in (100, 0)]
    for each in shown:
        each.write_bytes(file.read_bytes())
    assert run(["segments", "verify", str(shown[0])]) == 0
    assert run(["segments", "verify", str(shown[1])]) == 1
    assert f"holds another segment: {shown[0].name}, of orders-3" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_verified(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = file.with_name("none")
    assert run(["segments", "verify", str(none), str(file)]) == 1
    out = capsys.readouterr().out
    assert f"{none}: cannot be read: No such file" in out and f"{file}: ok" in out


def test_the_segments_of_a_topic_are_listed(
    valkey_server: TestServer, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--redis", valkey_server.url]
    with valkey_server.client() as client:
        client.flushall()
        assert run(["segments", "list", "t", *at]) == 2
        part = Part(StoreRunner(client), mode="dense")
        assert run(["topics", "create", "t", *at]) == 0
        row = b"0:4:0:5:0:100:10:7:abc"
        client.zadd(part.keys.segments, {row: 0})
        capsys.readouterr()
        assert run(["segments", "list", "t", "--json", *at]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["partition"], shown["first"], shown["last"], shown["records"]) == (0, 0, 4, 5)
    assert (shown["bytes"], shown["max_timestamp"], shown["id"]) == (100, 7, "abc")
