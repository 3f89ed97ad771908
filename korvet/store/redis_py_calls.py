"""Calls and errors in the form that redis-py takes and raises."""

from collections.abc import Sequence
from typing import Any

import redis

from korvet.scripts.call import Arg, Call


def evalsha_of(call: Call[Any]) -> Sequence[Any]:
    """Return the EVALSHA command of a call."""
    return ("EVALSHA", call.script.sha1, len(call.keys), *call.keys, *map(plain_arg, call.args))


def plain_arg(arg: Arg) -> bytes | str | int:
    """Return the argument as a type that redis-py takes: it copies buffers to bytes."""
    return bytes(arg) if isinstance(arg, bytearray | memoryview) else arg


def message_of(error: Exception) -> str:
    """Return the message with its code: redis-py drops the code of errors that have a class."""
    text = str(error)
    code = _CODES.get(type(error))
    return f"{code} {text}" if code and not text.startswith(code) else text


_CODES: dict[type[Exception], str] = {
    redis.exceptions.OutOfMemoryError: "OOM",
    redis.exceptions.ReadOnlyError: "READONLY",
    redis.exceptions.BusyLoadingError: "LOADING",
    redis.exceptions.MasterDownError: "MASTERDOWN",
    redis.exceptions.ClusterDownError: "CLUSTERDOWN",
    redis.exceptions.TryAgainError: "TRYAGAIN",
}
