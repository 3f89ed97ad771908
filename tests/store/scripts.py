"""Small scripts for the stores' tests, and the calls to them."""

from pathlib import Path
from typing import TypeVar

from korvet.scripts import bundle
from korvet.scripts.call import Arg, Call, Reply, Script

ROOT = Path(__file__).parent / "lua"

R = TypeVar("R", bound=Reply)


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


def script(name: str, reply: type[R]) -> Script[R]:
    """A script of the tests' own directory."""
    made = Script(name, reply)
    made.__dict__["bundle"] = bundle.load(name, ROOT)
    return made


PUSH = script("list.push", Counted)
ADD = script("list.add", Counted)
ECHO = script("text.echo", Echoed)
FAIL = script("text.fail", Failed)


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
