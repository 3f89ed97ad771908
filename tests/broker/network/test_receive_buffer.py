"""Check the receive buffer where several event loops run in one process."""

from concurrent.futures import ThreadPoolExecutor

from korvet.broker.network.receive_buffer import ReceiveBuffer


def receive(buffer: ReceiveBuffer, data: bytes) -> None:
    memory = buffer.buffer()
    memory[: len(data)] = data


def test_event_loops_of_one_process_do_not_share_the_scratch_buffer() -> None:
    here = ReceiveBuffer(1000, 1000, 0)
    first, second = b"\0\0\0\4\0\x12aa", b"\0\0\0\4\0\x12bb"
    receive(here, first)
    with ThreadPoolExecutor(1) as other_thread:
        other = other_thread.submit(ReceiveBuffer, 1000, 1000, 0).result()
        receive(other, second)
    here.took(len(first))
    other.took(len(second))
    assert (bytes(here.next()), bytes(other.next())) == (first[4:], second[4:])
