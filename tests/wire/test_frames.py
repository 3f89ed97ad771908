"""Frames come out whole and in order, however the bytes come in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.wire.errors import FrameTooLarge
from korvet.wire.frames import FrameReader, frame


def test_a_frame_is_its_length_and_its_parts() -> None:
    assert frame(b"ab", memoryview(b"c")) == b"\0\0\0\3abc"
    assert frame() == b"\0\0\0\0"


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.binary(max_size=30), max_size=6), st.data())
def test_any_cut_of_a_stream_gives_the_same_frames(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(frame(body) for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader, got = FrameReader(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += list(reader.feed(stream[start:end]))
    assert got == bodies
    assert reader.pending == 0


@pytest.mark.parametrize("length", [-1, 11, 2**31 - 1])
def test_frames_before_a_lying_length_are_given_then_it_is_refused(length: int) -> None:
    reader = FrameReader(limit=10)
    frames = reader.feed(frame(b"fine") + length.to_bytes(4, "big", signed=True))
    assert next(frames) == b"fine"
    with pytest.raises(FrameTooLarge, match=f"a frame of {length} bytes, at most 10"):
        next(frames)


def test_a_frame_of_exactly_the_limit_is_accepted() -> None:
    assert list(FrameReader(limit=3).feed(frame(b"abc"))) == [b"abc"]
