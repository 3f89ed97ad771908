"""Check the buffer for a produced batch's records: one per thread, and decompression into it."""

from concurrent.futures import ThreadPoolExecutor

import cramjam
import pytest

from korvet.base.buffers import CAPACITY, PADDING, work_buffer
from korvet.wire import compression

PLAIN = {65_536: "60 40 82", 262_144: "60 50 fb", 1 << 20: "60 60 51", 4 << 20: "60 70 73"}
"""Descriptors of lz4 frames without checksums, by the maximal bytes of a block."""
LIMIT = 1 << 22


def plain_frame(parts: list[bytes], most: int = 65_536, stored: bool = False) -> bytes:
    """Build an lz4 frame as Java's producer does, with a block for each part."""
    frame = bytes.fromhex("04224d18" + PLAIN[most])
    for part in parts:
        block = part if stored else bytes(cramjam.lz4.compress_block(part, store_size=False))
        frame += (len(block) | stored << 31).to_bytes(4, "little") + block
    return frame + bytes(4)


def opened(frame: bytes, limit: int = LIMIT) -> bytes:
    """Return the decompressed bytes of an lz4 frame of a producer."""
    return bytes(compression.decompress_produced(compression.LZ4, frame, limit))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("most", PLAIN)
def test_blocks_of_frames_without_checksums_are_decompressed(most: int, stored: bool) -> None:
    parts = [b"a" * 65_536, bytes(range(256)) * 200, b"end"]
    frame = plain_frame(parts, most, stored)
    assert opened(frame) == b"".join(parts) == bytes(cramjam.lz4.decompress(frame))


@pytest.mark.parametrize("stored", [False, True])
def test_a_block_above_the_size_of_the_frames_blocks_is_refused(stored: bool) -> None:
    with pytest.raises(compression.CorruptPayload):
        opened(plain_frame([bytes(65_537)], stored=stored))


@pytest.mark.parametrize("at", [4, 5, 6, 11, 12])
def test_a_damaged_frame_without_checksums_is_refused(at: int) -> None:
    frame = bytearray(plain_frame([bytes(range(256)) * 4]))
    frame[at] ^= 0xFF
    with pytest.raises(compression.CorruptPayload):
        opened(bytes(frame))


@pytest.mark.parametrize("end", [b"", bytes(3), b"\0\0\0\x80", bytes(5)])
def test_a_frame_ends_with_its_end_mark(end: bytes) -> None:
    with pytest.raises(compression.CorruptPayload):
        opened(plain_frame([b"value"])[:-4] + end)


def test_the_limit_holds_for_frames_without_checksums() -> None:
    frame = plain_frame([bytes(60_000)] * 3)
    assert len(opened(frame, 180_000)) == 180_000
    with pytest.raises(compression.PayloadTooLarge):
        opened(frame, 179_999)


def test_zeros_follow_the_records() -> None:
    buffer = work_buffer()
    for records in (b"\xff" * CAPACITY, b"\xff" * 100, b"k"):
        size = len(records)
        buffer.take(records)
        assert buffer.memory[: size + len(PADDING)] == records + PADDING
    assert len(work_buffer(CAPACITY + 1).room) == CAPACITY + 1


def test_each_thread_has_its_own_buffer() -> None:
    with ThreadPoolExecutor(1) as other:
        assert other.submit(work_buffer).result() is not work_buffer()
    assert work_buffer() is work_buffer()
