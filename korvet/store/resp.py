"""Commands as buffers for a socket, and the reader of replies.

A command of small arguments is one bytes object, packed by hiredis in C. An argument of `BIG`
bytes or more is left where it is: the command is then several buffers, and the payload one of
them, so that the kernel is the first to copy it.
"""

from collections.abc import Sequence

import hiredis

from korvet.scripts.call import Arg

BIG = 8 * 1024
# Beyond so many arguments looking at each costs more than copying: they are small then.
MANY = 40
_END = b"\r\n"


class ErrorReply(Exception):
    """An error that Redis sent as a reply; the message begins with its code."""


class Nothing:
    """What the reader returns when it holds no whole reply; None is a reply."""


NOTHING = Nothing()


def reader() -> hiredis.Reader:
    """A fresh reader; it keeps its buffer between replies, up to a megabyte."""
    made = hiredis.Reader(replyError=ErrorReply, notEnoughData=NOTHING)
    made.setmaxbuf(1 << 20)
    return made


class Packer:
    """Collects the commands of one loop turn; `take` gives the buffers to write, in order."""

    __slots__ = ("_buffers", "_small")

    def __init__(self) -> None:
        self._buffers: list[bytes | memoryview] = []
        self._small: list[bytes] = []

    def take(self) -> list[bytes | memoryview]:
        """Everything added since the last time, neighbouring small pieces joined."""
        buffers, self._buffers = self._buffers, []
        if self._small:
            small, self._small = self._small, []
            buffers.append(small[0] if len(small) == 1 else b"".join(small))
        return buffers

    def add(self, command: Sequence[Arg]) -> int:
        """The command is queued; returns its size in bytes."""
        packable: Sequence[Arg] = command
        if len(command) <= MANY:
            for at, arg in enumerate(command):
                kind = type(arg)
                if kind is int or kind is str:
                    continue
                if len(arg) >= BIG:  # type: ignore[arg-type]
                    return self._add_mixed(command)
                if kind is not bytes:
                    # A small buffer is copied sooner than it is sent by itself.
                    if packable is command:
                        packable = list(command)
                    packable[at] = bytes(arg)  # type: ignore[index, arg-type]
        try:
            packed: bytes = hiredis.pack_command(tuple(packable))  # type: ignore[arg-type]
        except TypeError:
            return self._add_mixed(command)
        self._small.append(packed)
        return len(packed)

    def _add_mixed(self, command: Sequence[Arg]) -> int:
        small = self._small
        small.append(b"*%d\r\n" % len(command))
        size = len(small[-1])
        for arg in command:
            data = arg if type(arg) is bytes else _buffer(arg)
            length = len(data)
            size += length + 12
            if length < BIG:
                small.append(b"$%d\r\n%b\r\n" % (length, data))  # type: ignore[str-format]
                continue
            small.append(b"$%d\r\n" % length)
            self._buffers.append(b"".join(small))
            self._buffers.append(data)
            small.clear()
            small.append(_END)
        return size


def _buffer(arg: Arg) -> bytes | memoryview:
    """The argument as bytes or as a flat memoryview of itself; a str and an int become text."""
    if isinstance(arg, str):
        return arg.encode()
    if isinstance(arg, int):
        return b"%d" % arg
    view = memoryview(arg)
    return view if view.itemsize == 1 and view.ndim == 1 else view.cast("B")
