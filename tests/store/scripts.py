"""Small scripts for the stores' tests, and the calls to them."""

from pathlib import Path

from korvet.scripts.call import Arg, Call, Reply, Script

ROOT = Path(__file__).parent / "lua"


class Counted(Reply):
    """The list's length after the push."""

    error: int
    length: int


class Echoed(Reply):
    """The payload of the call, and its size."""

    error: int
    size: int
    payload: bytes


class Failed(Reply):
    """The reply of a script that always fails, so no call returns it."""

    error: int


PUSH = Script("list.push", Counted, ROOT)
ADD = Script("list.add", Counted, ROOT)
ECHO = Script("text.echo", Echoed, ROOT)
FAIL = Script("text.fail", Failed, ROOT)


def push(value: Arg) -> Call[Counted]:
    """Append the value to the list."""
    return Call(PUSH, ("list",), (value,))


def add(value: Arg) -> Call[Counted]:
    """Append the value to the list by a second script."""
    return Call(ADD, ("list",), (value,))


def echo(payload: Arg) -> Call[Echoed]:
    """Return the payload."""
    return Call(ECHO, (), (payload,))


def fail() -> Call[Failed]:
    """Fail with an error."""
    return Call(FAIL, ("list",), ())
