"""Commands as buffers for a socket, and the parser of replies.

A command of small arguments is one bytes object, packed by hiredis in C. An argument of `BIG` bytes
or more is not copied: the command is then several buffers, one of them the argument, so that the
kernel makes the first copy.
"""

import re
from collections.abc import Sequence

import hiredis

from korvet.scripts.call import Arg
from korvet.store.errors import ValueTooLarge

BIG = 8 * 1024
# Above this number of arguments, a check of each costs more than a copy: they are small then.
MANY = 40
_END = b"\r\n"
_LINE = re.compile(rb"[^\r\n]*\r\n")
_COUNTED = re.compile(rb"(?:\$-1|\$(\d+)|\*-1|\*(\d+)|[-+:][^\r\n]*)\r\n")
LONGEST = 512 << 20
"""Bytes of the longest argument, by the default of proto-max-bulk-len."""


class ErrorReply(Exception):
    """An error reply of Redis; the message begins with its code."""


class Nothing:
    """The result of the parser without a complete reply; None is a reply."""


NOTHING = Nothing()


def reader() -> hiredis.Reader:
    """Return a new parser; it keeps its buffer between replies, up to 1 MiB."""
    parser = hiredis.Reader(replyError=ErrorReply, notEnoughData=NOTHING)
    parser.setmaxbuf(1 << 20)
    return parser


class Packed(bytes):
    """Arguments of a command as they are sent: the last item of the command, in their place."""

    number: int
    longest: int


def pack_arguments(arguments: Sequence[Arg]) -> Packed:
    """Pack arguments, in any thread: thousands take the event loop too long."""
    try:
        packed: bytes = hiredis.pack_command(tuple(arguments))  # type: ignore[arg-type]
    except TypeError:
        copied = (arg if isinstance(arg, int | str) else bytes(arg) for arg in arguments)
        packed = hiredis.pack_command(tuple(copied))  # type: ignore[arg-type]
    done = Packed(packed[packed.index(_END) + len(_END) :])
    done.number = len(arguments)
    done.longest = max((len(arg) for arg in arguments if not isinstance(arg, int)), default=0)
    return done


class Packer:
    """Collects the commands of one event-loop iteration; `take` returns the buffers in order."""

    __slots__ = ("_buffers", "_small", "longest")

    def __init__(self) -> None:
        self.longest = LONGEST
        """Max bytes of an argument."""
        self._buffers: list[bytes | memoryview] = []
        self._small: list[bytes] = []

    def take(self) -> list[bytes | memoryview]:
        """Return everything added since the last call, with adjacent small pieces joined."""
        buffers, self._buffers = self._buffers, []
        if self._small:
            small, self._small = self._small, []
            buffers.append(small[0] if len(small) == 1 else b"".join(small))
        return buffers

    def add(self, command: Sequence[Arg]) -> int:
        """Queue the command; return its size in bytes. Raises ValueTooLarge if an argument is."""
        last = command[-1]
        if type(last) is Packed:
            return self._add_packed(command[:-1], last)
        packable: Sequence[Arg] = command
        if len(command) <= MANY:
            for at, arg in enumerate(command):
                kind = type(arg)
                if kind is int or kind is str:
                    continue
                if len(arg) >= BIG:  # type: ignore[arg-type]
                    return self._add_mixed(command)
                if kind is not bytes:
                    # Copying a small buffer costs less than a separate write.
                    if packable is command:
                        packable = list(command)
                    packable[at] = bytes(arg)  # type: ignore[index, arg-type]
        try:
            packed: bytes = hiredis.pack_command(tuple(packable))  # type: ignore[arg-type]
        except TypeError:
            return self._add_mixed(command)
        if len(packed) > self.longest:
            self._check(packable)
        self._small.append(packed)
        return len(packed)

    def _add_packed(self, head: Sequence[Arg], more: Packed) -> int:
        if more.longest > self.longest:
            raise ValueTooLarge(more.longest, self.longest)
        packed: bytes = hiredis.pack_command(tuple(head))  # type: ignore[arg-type]
        count = b"*%d" % (len(head) + more.number)
        self._buffers.append(b"".join((*self._small, count, packed[packed.index(_END) :])))
        self._buffers.append(more)
        self._small.clear()
        return len(packed) + len(more)

    def _check(self, command: Sequence[Arg]) -> None:
        """Raise ValueTooLarge if Redis does not take an argument."""
        longest = max(len(arg) for arg in command if not isinstance(arg, int))
        if longest > self.longest:
            raise ValueTooLarge(longest, self.longest)

    def _add_mixed(self, command: Sequence[Arg]) -> int:
        self._check(command)
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
    """Return the argument as bytes or as a flat memoryview; str and int become text."""
    if isinstance(arg, str):
        return arg.encode()
    if isinstance(arg, int):
        return b"%d" % arg
    view = memoryview(arg)
    return view if view.itemsize == 1 and view.ndim == 1 else view.cast("B")


class BadReply(ValueError):
    """The bytes are no reply of Redis."""


def end_of(view: memoryview, at: int, end: int) -> int:
    """Return the position after the reply that begins at `at`; -1 if it is incomplete.

    No value of it becomes an object. Raises BadReply.
    """
    left = 1
    while left:
        found = _COUNTED.match(view, at, end)
        if found is None:
            if at < end and (view[at] not in b"$*-+:" or _LINE.match(view, at, end)):
                raise BadReply(f"unexpected byte {view[at]} in a reply")
            return -1
        at = found.end()
        size, items = found.groups()
        if size is not None:
            at += int(size) + 2
        elif items is not None:
            left += int(items)
        left -= 1
    return at if at <= end else -1
