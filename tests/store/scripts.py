"""Small scripts for the stores' tests, and the calls to them."""

from pathlib import Path

from korvet.scripts.call import Arg, Call, Reply, Script

ROOT = Path(__file__).parent / "lua"


class Counted(Reply):
    """The list's length after the push."""

    error: int
    length: int


class Echoed(Reply):
    """What was sent, and its size."""

    error: int
    size: int
    payload: bytes


class Failed(Reply):
    """Never seen: the script fails."""

    error: int


PUSH = Script("list.push", Counted, ROOT)
ADD = Script("list.add", Counted, ROOT)
ECHO = Script("text.echo", Echoed, ROOT)
FAIL = Script("text.fail", Failed, ROOT)


def push(value: Arg) -> Call[Counted]:
    """The value is the last of the list."""
    return Call(PUSH, ("list",), (value,))


def add(value: Arg) -> Call[Counted]:
    """The same by another script."""
    return Call(ADD, ("list",), (value,))


def echo(payload: Arg) -> Call[Echoed]:
    """The payload comes back."""
    return Call(ECHO, (), (payload,))


def fail() -> Call[Failed]:
    """An error, always."""
    return Call(FAIL, ("list",), ())
