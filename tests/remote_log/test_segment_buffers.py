"""Check that a buffer serves one segment at a time."""

from korvet.remote_log.copier import SegmentBuffers


def test_a_buffer_is_used_again_once_its_segment_is_written() -> None:
    buffers = SegmentBuffers()
    first = buffers.take()
    first += b"abc"
    assert buffers.take() is not first
    buffers.give_back(first)
    assert buffers.take() is first and first == b"abc"


def test_a_buffer_with_a_view_is_not_used_again() -> None:
    buffers = SegmentBuffers()
    first = buffers.take()
    first += b"abc"
    view = memoryview(first)
    buffers.give_back(first)
    assert buffers.take() is not first and view == b"abc"


def test_a_buffer_is_dropped_after_a_pass_without_a_copy() -> None:
    buffers = SegmentBuffers()
    first = buffers.take()
    buffers.give_back(first)
    buffers.drop_unused()
    assert buffers.take() is first
    buffers.give_back(first)
    for _ in range(2):
        buffers.drop_unused()
    assert buffers.take() is not first
