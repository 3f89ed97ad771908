"""Redis Cluster's hash slots and redirections."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.crc import key_slot

from korvet.base.bounded import ByteBounded
from korvet.scripts.call import Arg, Call, Reply

R = TypeVar("R", bound=Reply)

SLOTS = 16384

# Commands without a key, which any node answers; others have it first, or as below.
_NO_KEY = """
    ASKING CLIENT CLUSTER COMMAND CONFIG DBSIZE DEBUG ECHO FLUSHALL FLUSHDB INFO KEYS LATENCY PING
    PUBLISH PUBSUB SCAN SCRIPT SLOWLOG TIME WAIT WAITAOF
"""
_KEYLESS = frozenset(_NO_KEY.split())
_SECOND = frozenset(("OBJECT", "MEMORY", "XGROUP", "XINFO"))


@dataclass(frozen=True)
class Redirect:
    """MOVED: the slot has another node. ASK: send this command there once."""

    asking: bool
    slot: int
    host: str
    port: int


_slots = ByteBounded[str, int]("cluster slots", 16 << 20)


def slot_of_key(key: str) -> int:
    """Return the slot of a key, with its hash tag."""
    found = _slots.get(key)
    return _slots.put(key, key_slot(key.encode())) if found is None else found


def slot_of_call(call: Call[Any]) -> int | None:
    """Return the slot of a call's keys, which is one; None without keys."""
    return slot_of_key(call.keys[0]) if call.keys else None


def whole(call: Call[R]) -> Call[R]:
    """Return the call so that its script runs to its end or not at all while its slot moves.

    In a slot that moves to another node, Redis ends a script that touches a missing key, and keeps
    what was written before. A script that removes a key and sets it again would lose it. But Redis
    refuses a script at its beginning (TRYAGAIN) if it has one of its keys and lacks another. So the
    call has one key more, which never exists.
    """
    if not call.script.contract.takes_absent_key:
        return call
    before, _, after = call.keys[0].partition("{")
    tag = after.partition("}")[0] or before
    return Call(call.script, (*call.keys, f"{{{tag}}}:absent"), call.args)


def slot_of_command(command: Sequence[Arg]) -> int | None:
    """Return the slot of a plain command's first key; None without one."""
    word = _text(command[0]).upper()
    if word in _KEYLESS or len(command) < 2:
        return None
    if word in ("XREAD", "XREADGROUP"):
        words = [_text(arg).upper() for arg in command]
        key = command[words.index("STREAMS") + 1]
    elif word in ("EVAL", "EVALSHA"):
        if int(_text(command[2])) == 0:
            return None
        key = command[3]
    else:
        key = command[2 if word in _SECOND else 1]
    return key_slot(key.encode() if isinstance(key, str) else bytes(_raw(key)))


def parse_slots(reply: Sequence[Any], asked: str) -> list[tuple[int, int, str, int]]:
    """Parse a CLUSTER SLOTS reply: first slot, last slot, host and port of each master.

    A node that does not know its own name has the host that was asked.
    """
    rows = []
    for first, last, master, *_ in reply:
        host = master[0].decode() if master[0] else ""
        known = host not in ("", "?")
        rows.append((int(first), int(last), host if known else asked, int(master[1])))
    return rows


def parse_redirect(message: str, asked: str) -> Redirect | None:
    """Parse a MOVED or ASK error; None for other errors."""
    word, _, target = message.partition(" ")
    if word not in ("MOVED", "ASK"):
        return None
    slot, _, where = target.partition(" ")
    host, _, port = where.rpartition(":")
    return Redirect(word == "ASK", int(slot), host or asked, int(port))


def _raw(arg: Arg) -> bytes | bytearray | memoryview:
    return b"%d" % arg if isinstance(arg, int) else arg.encode() if isinstance(arg, str) else arg


def _text(arg: Arg) -> str:
    return arg if isinstance(arg, str) else bytes(_raw(arg)).decode(errors="replace")
