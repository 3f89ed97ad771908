"""Check that batches are found in the receive buffer, wherever the bytes are split."""

from random import Random

import hiredis
import pytest

from korvet.log.batch_reply import BatchReply
from korvet.log.entry import DENSE_MS
from korvet.wire.records import HEADER_SIZE, read_header

STATE = (b"topic", b"30", b"0", None, b"", b"-1")
RANDOM = Random(29)


def packed(value: object) -> bytes:
    """Return a value as a Redis reply."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    assert isinstance(value, list | tuple)
    return b"*%d\r\n%b" % (len(value), b"".join(map(packed, value)))


def entry(last: int, count: int, size: int, *, mode: str = "dense") -> list[object]:
    """Return an entry as brokers append it."""
    batch = RANDOM.randbytes(size - 4) + b"\r\n$5"
    fields = [b"batch", batch, b"count", b"%d" % count, b"max.timestamp", b"1700000000000"]
    name = b"%d-%d" % ((last >> 4, last & 15) if mode == "time" else (DENSE_MS, last))
    return [name, fields]


def walked(reply: bytes, cuts: list[int], bits: int | None = None) -> tuple[BatchReply, int]:
    """Read the reply while it arrives in parts, after other bytes; return it and the last
    cut."""
    buffer = bytearray(b"+before\r\n" + reply + b"$5\r\nnext")
    start, batch_reply, stop = 9, BatchReply(3, 100.0, bits, with_state=True), -1
    for cut in [*cuts, len(reply), len(reply) + 8]:
        # Bytes that have not arrived yet must not be read.
        view = memoryview(buffer[: start + cut] + bytes(len(buffer) - start - cut))
        if stop < 0:
            batch_reply.restart()
        stop = batch_reply.read(view, start, start + cut)
        if stop >= 0:
            assert stop == start + len(reply)
            return batch_reply, cut
    raise AssertionError("the end was not found")


def replies(rows: object, bounds: object = (b"topic", b"2", b"7")) -> bytes:
    """Return the three replies of a range."""
    body = rows if isinstance(rows, bytes) else packed(rows)
    return packed(STATE) + body + packed(bounds)


def test_batches_have_their_offsets_and_their_bytes() -> None:
    rows = [entry(9, 10, 200), entry(12, 2, HEADER_SIZE), entry(30, 1, 5000)]
    reply = replies(rows)
    for cut in range(len(reply) + 1):
        batch_reply, seen = walked(reply, [cut])
        assert seen == len(reply)
        assert batch_reply.state == [b"topic", b"30", b"0", None, None, b"-1"]
        assert batch_reply.local_start == 7
        assert [batch_reply.has("topic", at) for at in (1, 2)] == [False, True]
        assert not batch_reply.has("other", 2)
    found = batch_reply.take(3, 1 << 20, 5)
    assert found is not None
    assert (found.first, found.next, found.records, found.size) == (0, 31, 13, 5261)
    assert found.offsets == [3, 10, 13]
    for part, (_, fields), first in zip(found.parts, rows, (0, 11, 30), strict=True):
        stored = fields[1]  # type: ignore[index]
        assert part[16:] == stored[16:] and part[8:12] == stored[8:12]
        assert read_header(part).base_offset == first
        assert read_header(part).leader_epoch == 5


def test_the_bytes_are_read_as_they_arrive_without_a_new_start() -> None:
    rows = [entry(9 + 10 * n, 10, 300 + n) for n in range(20)]
    reply = replies(rows)
    buffer = bytearray(len(reply))
    for step in (1, 7, 64, 1000):
        batch_reply, stop = BatchReply(20, 300.0, None, with_state=True), -1
        for end in range(0, len(reply) + step, step):
            buffer[:end] = reply[:end]
            stop = batch_reply.read(memoryview(buffer), 0, min(end, len(reply)))
        assert stop == len(reply)
        found = batch_reply.take(0, 1 << 20, 0)
        assert found is not None and len(found.parts) == 20


def test_without_a_state_the_entries_come_first() -> None:
    rows = [entry(9, 10, 200), entry(19, 10, 300)]
    buffer = bytearray(replies(rows)[len(packed(STATE)) :])
    for cut in range(len(buffer) + 1):
        reply = BatchReply(2, 300.0, None, with_state=False)
        assert (reply.read(memoryview(buffer), 0, cut) < 0) == (cut < len(buffer))
        assert reply.read(memoryview(buffer), 0, len(buffer)) == len(buffer)
        found = reply.take(0, 1 << 20, 0)
        assert found is not None and found.size == 500 and reply.state == []
        assert reply.has("topic", 2) and reply.local_start == 7


def test_no_more_than_fits_is_taken_and_one_at_least() -> None:
    batch_reply, _ = walked(
        replies([entry(9, 10, 200), entry(19, 10, 200), entry(29, 10, 200)]), []
    )
    sizes = [batch_reply.take(0, most, 0) for most in (1, 399, 400, 600)]
    assert [found and len(found.parts) for found in sizes] == [1, 1, 2, 3]
    assert sizes[2] is not None and (sizes[2].next, sizes[2].records) == (20, 20)


def test_ids_of_time_mode_are_offsets_with_gaps() -> None:
    rows = [entry(163, 2, 100, mode="time"), entry(1602, 1, 100, mode="time")]
    batch_reply, _ = walked(replies(rows), [], 4)
    found = batch_reply.take(7, 1 << 20, 0)
    assert found is not None
    assert [read_header(part).base_offset for part in found.parts] == [162, 1602]
    assert (found.first, found.next, found.records) == (162, 1603, 3)
    beyond = [[b"10-16", rows[0][1]]]  # a sequence that is no part of an offset
    assert walked(replies(beyond), [], 4)[0].take(7, 1 << 20, 0) is None


GOOD = entry(9, 10, 200)
FOREIGN: dict[str, list[object]] = {
    "other fields": [b"%d-5" % DENSE_MS, [b"value", b"x"]],
    "no fields": [b"%d-5" % DENSE_MS, []],
    "a number too many": [b"%d-5" % DENSE_MS, [*GOOD[1], b"a", b"b"]],  # type: ignore[misc]
    "append time": [b"%d-5" % DENSE_MS, [b"append.time", b"5", *GOOD[1]]],  # type: ignore[misc]
    "another time": [b"5-5", GOOD[1]],
    "a short batch": entry(12, 1, HEADER_SIZE - 1),
    "a count of words": [
        b"%d-5" % DENSE_MS,
        [b"batch", bytes(80), b"count", b"soon", b"max.timestamp", b"5"],
    ],
    "a time of words": [
        b"%d-5" % DENSE_MS,
        [b"batch", bytes(80), b"count", b"1", b"max.timestamp", b"soon"],
    ],
}


@pytest.mark.parametrize("other", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_entry_of_another_client_leaves_the_rows(other: list[object], place: int) -> None:
    rows: list[object] = [entry(3, 2, 150), entry(40, 2, 150)]
    rows.insert(place, other)
    reply = replies(rows)
    for cut in range(0, len(reply), 5):
        batch_reply, seen = walked(reply, [cut])
        assert seen == len(reply) and batch_reply.take(0, 1 << 20, 0) is None
    parser = hiredis.Reader()
    parser.feed(packed(rows))
    assert batch_reply.rows == parser.gets()


def test_without_entries_there_are_no_batches() -> None:
    batch_reply, _ = walked(replies([]), [])
    assert batch_reply.take(0, 1 << 20, 0) is None and batch_reply.rows == []


def test_errors_end_where_they_end() -> None:
    error = b"-WRONGTYPE no stream\r\n"
    batch_reply, seen = walked(replies(error, None), [5, 60])
    assert (
        batch_reply.take(0, 100, 0) is None
        and batch_reply.rows is None
        and batch_reply.local_start == 0
    )
    assert not batch_reply.has("topic", 0)
    whole = error * 3
    batch_reply, seen = walked(whole, [10])
    assert seen == len(whole) and batch_reply.state == [] and batch_reply.rows is None
