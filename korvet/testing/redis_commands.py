"""The Redis commands that LuaRunner knows: which arguments are keys, and which commands write.

A script that uses a command not listed here fails in LuaRunner: look the command up in Redis's
documentation (it must exist in 6.2) and add it.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter

Find = Callable[[Sequence[bytes]], Sequence[bytes]]


class UnknownCommand(Exception):
    """A command that the tables of this module do not list."""


_none: Find = itemgetter(slice(0))
_first: Find = itemgetter(slice(1))
_second: Find = itemgetter(slice(1, 2))
_two: Find = itemgetter(slice(2))
_all: Find = itemgetter(slice(None))


def _streams(args: Sequence[bytes]) -> Sequence[bytes]:
    words = [arg.upper() for arg in args]
    after = words.index(b"STREAMS") + 1
    return args[after : after + (len(args) - after) // 2]


def _stored_and_counted(args: Sequence[bytes]) -> Sequence[bytes]:
    return [args[0], *args[2 : 2 + int(args[1])]]


_READ_FIRST = """
    GET GETRANGE STRLEN TTL PTTL TYPE HGET HMGET HGETALL HEXISTS HLEN HKEYS HVALS HSTRLEN HSCAN
    HRANDFIELD
    SCARD SISMEMBER SMISMEMBER SMEMBERS SSCAN LLEN LRANGE LINDEX ZCARD ZCOUNT ZLEXCOUNT ZRANGE
    ZRANGEBYSCORE ZRANGEBYLEX ZREVRANGE ZREVRANGEBYSCORE ZRANK ZREVRANK ZSCORE ZMSCORE XLEN XRANGE
    XREVRANGE XPENDING
"""
_WRITE_FIRST = """
    SET SETEX PSETEX SETNX GETSET GETDEL APPEND INCR INCRBY DECR DECRBY EXPIRE PEXPIRE EXPIREAT
    PEXPIREAT PERSIST HSET HSETNX HMSET HDEL HINCRBY SADD SREM SPOP LPUSH RPUSH LPOP RPOP LREM LSET
    LTRIM ZADD ZREM ZINCRBY ZPOPMIN ZPOPMAX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX XADD
    XDEL XTRIM XSETID XACK XCLAIM XAUTOCLAIM
"""

READS: dict[str, Find] = {
    "TIME": _none,
    **dict.fromkeys(_READ_FIRST.split(), _first),
    "EXISTS": _all,
    "MGET": _all,
    "XINFO": _second,
    "XREAD": _streams,
}

WRITES: dict[str, Find] = {
    # A message is not stored and its channel is not a key, but it announces a write.
    "PUBLISH": _none,
    **dict.fromkeys(_WRITE_FIRST.split(), _first),
    "DEL": _all,
    "UNLINK": _all,
    "RENAME": _two,
    "COPY": _two,
    "XGROUP": _second,
    "XREADGROUP": _streams,
    "ZRANGESTORE": _two,
    "ZUNIONSTORE": _stored_and_counted,
    "ZINTERSTORE": _stored_and_counted,
}

# Commands that reply with a status, which Lua receives as a table with the single field `ok`.
STATUS = frozenset(("SET", "SETEX", "PSETEX", "HMSET", "LSET", "LTRIM", "XSETID", "RENAME", "TYPE"))


def keys_of(name: str, args: Sequence[bytes]) -> Sequence[bytes]:
    """Return the keys among a command's arguments."""
    find = READS.get(name) or WRITES.get(name)
    if find is None:
        raise UnknownCommand(f"{name} is not in korvet/testing/redis_commands.py")
    return find(args)


def is_status(name: str, args: Sequence[bytes]) -> bool:
    """Return whether the command replies with a status instead of a value."""
    if name == "XGROUP":
        return args[0].upper() in (b"CREATE", b"SETID")
    if name == "SET":
        return b"GET" not in [arg.upper() for arg in args[2:]]
    return name in STATUS
