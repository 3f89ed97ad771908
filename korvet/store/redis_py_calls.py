"""Calls, replies and errors in the form that redis-py takes, returns and raises."""

from collections.abc import Sequence
from typing import Any, TypeVar

import redis
from redis.exceptions import RedisClusterException

from korvet.scripts.call import Arg, Call, Reply
from korvet.store.errors import StoreError, command_error, script_error

R = TypeVar("R", bound=Reply)
UNAVAILABLE = (redis.ConnectionError, redis.TimeoutError, RedisClusterException, OSError)
"""The exceptions after which the outcome of a command is unknown."""


def evalsha_of(call: Call[Any]) -> Sequence[Any]:
    """Return the EVALSHA command of a call."""
    return ("EVALSHA", call.script.sha1, len(call.keys), *call.keys, *map(plain_arg, call.args))


def eval_of(call: Call[Any]) -> Sequence[Any]:
    """Return the EVAL command of a call, for a Redis that does not have the script."""
    return ("EVAL", call.script.text, *evalsha_of(call)[2:])


def plain_arg(arg: Arg) -> bytes | str | int:
    """Return the argument as a type that redis-py takes: it copies buffers to bytes."""
    return bytes(arg) if isinstance(arg, bytearray | memoryview) else arg


def reply_of(call: Call[R], raw: object) -> R:
    """Return the reply as its type. Raises StoreError if it is an error."""
    if isinstance(raw, Exception):
        raise script_error(call.script.name, call.script.version, message_of(raw)) from raw
    return call.decode(raw)


def error_of(command: Sequence[Any], raw: Exception) -> StoreError:
    """Return the exception for an error reply to a plain command."""
    return command_error(str(command[0]), message_of(raw))


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
