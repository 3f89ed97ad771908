"""Check large replies that arrive in pieces of any size."""

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from korvet.store.raw_reply import FIRST_BUFFER, RawReply


class Pieces:
    """A connection, its pool and its socket; the replies arrive in pieces, split at `cuts`."""

    def __init__(self, replies: Sequence[bytes], *cuts: int) -> None:
        self._replies, self._cuts = replies, cuts
        self._waiting: list[bytes] = []
        self.closed = False
        self._sock = self
        self.connection_pool = SimpleNamespace(
            get_connection=lambda: self, release=lambda connection: None
        )

    def pack_commands(self, commands: Sequence[Sequence[Any]]) -> bytes:
        """Prepare the replies: ECHO gets its argument, other commands those given."""
        others = iter(self._replies)
        whole = b"".join(
            b"$%d\r\n%b\r\n" % (len(command[1]), command[1])
            if command[0] == "ECHO"
            else next(others)
            for command in commands
        )
        edges = [0, *(cut % len(whole) for cut in self._cuts), len(whole)]
        self._waiting = [whole[start:end] for start, end in pairwise(edges) if start < end]
        return b""

    def send_packed_command(self, packed: bytes) -> None:
        """Send nothing."""

    def recv_into(self, room: memoryview) -> int:
        """Receive the next piece, or as much of it as there is room for."""
        if not self._waiting:
            return 0
        piece = self._waiting[0][: len(room)]
        self._waiting[0] = self._waiting[0][len(piece) :]
        if not self._waiting[0]:
            del self._waiting[0]
        room[: len(piece)] = piece
        return len(piece)

    def disconnect(self) -> None:
        """Close the connection."""
        self.closed = True


def asked(connection: Pieces, then: int = 1) -> tuple[bytes, list[Any]]:
    """Return the large reply and the replies after it, as a Bulk reads them."""
    bulk = RawReply()
    bulk.ask(connection, ("GET", "x"), [("EXISTS", "x")] * then)
    reply, more = bulk.reply()
    return bytes(reply), more


TEXT = b"$4\r\ntext\r\n"


@pytest.mark.parametrize("cut", range(len(TEXT) + 2 * len(b"$16\r\n\r\n") + 32 + len(b":7\r\n")))
def test_a_reply_is_whole_wherever_its_bytes_are_cut(cut: int) -> None:
    assert asked(Pieces([TEXT, b":7\r\n"], cut)) == (TEXT, [7])
    assert asked(Pieces([TEXT], cut), then=0) == (TEXT, [])


def test_a_reply_larger_than_the_buffer_is_whole() -> None:
    large = b"$%d\r\n%b\r\n" % (3 * FIRST_BUFFER, bytes(3 * FIRST_BUFFER))
    assert asked(Pieces([large, b"*1\r\n$1\r\na\r\n"], 5, FIRST_BUFFER + 1)) == (large, [[b"a"]])


def test_a_connection_that_ends_before_its_replies_do_is_closed() -> None:
    connection = Pieces([TEXT, b":7\r\n"])
    bulk = RawReply()
    bulk.ask(connection, ("GET", "x"), [("EXISTS", "x")])
    connection._waiting[0] = connection._waiting[0][:-1]
    with pytest.raises(redis.ConnectionError):
        bulk.reply()
    assert connection.closed


def test_a_reply_that_is_not_waited_for_is_lost_with_its_connection() -> None:
    bulk = RawReply()
    first, second = Pieces([TEXT]), Pieces([b"$-1\r\n"])
    bulk.ask(first, ("GET", "x"), [])
    bulk.ask(second, ("GET", "y"), [])
    assert first.closed and not second.closed
    assert bytes(bulk.reply()[0]) == b"$-1\r\n"
