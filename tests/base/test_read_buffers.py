"""Check that a buffer is reused once no view of it exists, and not before."""

from korvet.base.buffers import LARGEST, UNIT, ReadBuffers


def address(view: memoryview) -> int:
    """Return which buffer a view belongs to."""
    return id(view.obj)


def test_a_buffer_is_lent_again_once_its_views_are_gone() -> None:
    buffers = ReadBuffers(8 * UNIT)
    first = buffers.take(1000)
    place, part = address(first), first[10:20]
    assert len(first) == 1000
    del first
    other = buffers.take(1000)
    assert address(other) != place, "a slice still exists"
    del part
    assert address(buffers.take(UNIT)) == place


def test_what_was_read_stays_until_its_views_are_gone() -> None:
    buffers = ReadBuffers(4 * UNIT)
    held = []
    for number in range(20):
        view = buffers.take(UNIT)
        view[:] = bytes([number]) * UNIT
        held.append(view.toreadonly()[5:])
    assert [each[0] for each in held] == list(range(20))


def test_the_pool_keeps_no_more_than_its_capacity() -> None:
    buffers = ReadBuffers(4 * UNIT)
    held = [buffers.take(size) for size in (1, UNIT, UNIT + 1, 3 * UNIT, LARGEST + 1)]
    assert [len(each) for each in held] == [1, UNIT, UNIT + 1, 3 * UNIT, LARGEST + 1]
    assert sum(map(len, buffers._buffers)) <= 4 * UNIT


def test_small_buffers_make_room_for_a_larger_one() -> None:
    buffers = ReadBuffers(4 * UNIT)
    small = [buffers.take(UNIT) for _ in range(4)]
    del small
    place = address(buffers.take(4 * UNIT))
    assert address(buffers.take(4 * UNIT)) == place
