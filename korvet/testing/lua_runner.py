"""Run a script in a checked Lua 5.1, on a fake Redis and a clock that the test controls.

`LuaRunner` runs the same calls as the stores, from the files as they are: `require` loads the
library's own file. `redis.call` goes to a private fakeredis, TIME returns the test's clock. Each
run is also checked for errors that a Redis server does not report; a `ContractViolation` names the
broken rule:

- every key the script touches is in KEYS
- the script reads no global that Redis does not have, and writes none
- it makes at most as many commands as COST allows
- a returned error is in REFUSES or SIGNALS, and nothing was written if it is in REFUSES
- a script that `reads` does not write
- the number of KEYS and ARGV is the header's, and an `int` argument is an integer
- the reply has no holes, fractions or booleans, and fits its struct

`eval` runs any script file; the rules that need a header do not apply to it.

The Redis commands that LuaRunner knows: which arguments are keys, and which commands write.

A script that uses a command not listed here fails in LuaRunner: look the command up in Redis's
documentation (it must exist in 6.2) and add it.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, cast

from redis.exceptions import ResponseError

from korvet.scripts import bundle, inlined
from korvet.scripts.call import Arg, Call, Reply, name_of
from korvet.scripts.contract import Contract, Row
from korvet.scripts.keys import Keys
from korvet.testing.fake import fake_redis
from korvet.testing.lua_sandbox import (
    STEP,
    LuaError,
    encode,
    is_table,
    lua_table,
    sandbox,
    to_lua,
)

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
        raise UnknownCommand(f"{name} is not in korvet/testing/lua_runner.py")
    return find(args)


def is_status(name: str, args: Sequence[bytes]) -> bool:
    """Return whether the command replies with a status instead of a value."""
    if name == "XGROUP":
        return args[0].upper() in (b"CREATE", b"SETID")
    if name == "SET":
        return b"GET" not in [arg.upper() for arg in args[2:]]
    return name in STATUS


R = TypeVar("R", bound=Reply)

START_MS = 1_750_000_000_000
"""The clock of a new LuaRunner, in ms since 1970."""


class ContractViolation(AssertionError):
    """A script broke a rule of its header or of Redis."""


class ScriptError(Exception):
    """A script ended with a Lua or Redis error."""


@dataclass
class Work:
    """The work of a script's run, which blocks Redis for that long."""

    commands: int = 0
    values: int = 0
    """Values that the commands had as arguments or returned."""
    bytes: int = 0
    """Bytes of these values, and of the script's own arguments."""
    instructions: int = 0
    """Instructions of the Lua VM, in steps of 1,000."""

    def note(self, value: Any) -> None:
        """Count a value, or the values of a list."""
        if isinstance(value, list):
            self.values += 1
            for item in value:
                self.note(item)
        else:
            self.values += 1
            self.bytes += len(value) if isinstance(value, bytes) else 8


class LuaRunner:
    """A runner with an empty fake Redis and a clock that only `advance` moves.

    >>> from korvet.testing import LuaRunner
    >>> runner = LuaRunner()
    >>> path = getfixture("tmp_path") / "total.lua"
    >>> _ = path.write_text("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    >>> runner.eval(path, keys=["total"], args=[5])
    5
    >>> runner.command("GET", "total")
    b'5'
    """

    def __init__(self) -> None:
        self.redis = cast(Any, fake_redis())
        self.redis.response_callbacks = {}
        # Commands go to the fake server without a client and RESP, which take longer.
        self._replies: list[Any] = []
        self._socket = self.redis.connection_pool.get_connection().get_socket()
        self._socket.put_response = self._replies.append
        self._now_ms = START_MS
        self.work = Work()
        """The work of the last run."""

    def now_ms(self) -> int:
        """Return the time that TIME reports, in ms since 1970."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move the clock forward."""
        self._now_ms += ms

    def run(self, call: Call[R]) -> R:
        """Return the call's reply. ContractViolation if the run broke a rule."""
        script = call.script
        run = _Run(self, script.contract.name, script.contract, call.keys, call.args)
        root = Path(str(script.root or bundle.default_root()))
        return call.decode(run.reply_of(root / (script.name.replace(".", "/") + ".lua"), root))

    def run_many(self, calls: Iterable[Call[R]]) -> list[R]:
        """Return the replies in the order of the calls."""
        return [self.run(call) for call in calls]

    def eval(
        self,
        path: Path | str,
        keys: Sequence[str] = (),
        args: Sequence[Arg] = (),
        *,
        library: bool = False,
    ) -> Any:
        """Return the raw reply of a script file without a header; EVAL with the checks above.

        `require("lib.x")` loads `lib/x.lua` from the script's folder. With `library` the text of
        `korvet scripts library` is in front of the file's.
        """
        file, before = Path(path), inlined.library() if library else ""
        return _Run(self, file.name, None, keys, args).reply_of(file, file.parent, before)

    def create_topic(self, topic: str, partitions: int = 1, mode: str = "time") -> str:
        """Create a topic of layout `record` in the fake Redis; return its id."""
        keys, topic_id = Keys(), hashlib.md5(topic.encode(), usedforsecurity=False).hexdigest()
        call = keys.topic_create(
            keys.logs(topic, range(partitions)),
            topic=topic,
            definition=b"{}",
            topic_id=topic_id,
            format="record",
            mode=mode,
            bits=10,
        )
        if self.run(call).error:
            raise ValueError(f"there is a topic {topic!r}")
        return topic_id

    def command(self, *command: Arg) -> Any:
        """Return the raw reply of the fake Redis to a command."""
        return self.reply_to(map(encode, command))

    def reply_to(self, words: Iterable[bytes]) -> Any:
        """Return the raw reply of the fake Redis to the words of a command."""
        self._socket._process_command([*words])
        reply = self._replies.pop()
        if isinstance(reply, ResponseError):
            raise reply
        return reply


class _Run:
    """A run of a script, and the commands it made."""

    def __init__(
        self,
        runner: LuaRunner,
        name: str,
        contract: Contract | None,
        keys: Sequence[str],
        args: Sequence[Arg],
    ) -> None:
        self._runner = runner
        self._name = name
        self._contract = contract
        self._keys = [key.encode() for key in keys]
        self._args = [encode(arg) for arg in args]
        self._calls = 0
        self._wrote: list[str] = []
        self._violation = ""
        runner.work = self._work = Work(bytes=sum(map(len, self._args)))

    def reply_of(self, path: Path, root: Path, before: str = "") -> Any:
        """Run the script file, after the Lua text `before`, and return its reply, checked."""
        self._check_arguments()
        try:
            raw = sandbox()(
                str(path).encode(),
                str(root).encode(),
                lua_table(self._keys),
                lua_table(self._args),
                self._command,
                self._report,
                self._step,
                before.encode() or None,
            )
        except LuaError as error:
            self._raise_violation()
            raise ScriptError(f"{self._name}: {error}") from None
        self._raise_violation()
        reply = self._plain(raw)
        self._check_reply(reply)
        self._raise_violation()
        return reply

    def _step(self, *_: object) -> None:
        self._work.instructions += STEP

    def _report(self, what: str | bytes) -> None:
        text = what.decode() if isinstance(what, bytes) else what
        self._violation = self._violation or text
        self._raise_violation()

    def _raise_violation(self) -> None:
        # Kept and raised again after the run: a pcall in the script must not hide it.
        if self._violation:
            raise ContractViolation(f"{self._name} {self._violation}")

    def _check_arguments(self) -> None:
        if self._contract is None:
            return
        _check_count("KEYS", self._contract.keys, len(self._keys), self._report)
        _check_count("ARGV", self._contract.args, len(self._args), self._report)
        for row, arg in zip(self._contract.args, self._args, strict=False):
            if row.type == "int" and not row.repeated:
                try:
                    int(arg)
                except ValueError:
                    self._report(f"got {arg!r} for the int {row.name}")

    def _command(self, *words: Any) -> Any:
        name, *args = [_encode_lua(word) for word in words]
        command = name.decode().upper()
        self._calls += 1
        self._work.commands += 1
        self._work.note(args)
        for key in keys_of(command, args):
            if key not in self._keys:
                self._report(f"touches {key.decode(errors='replace')!r}, which is not in KEYS")
        if command in WRITES:
            self._wrote.append(command)
            if self._contract is not None and not self._contract.writes:
                self._report(f"is declared as reads, and calls {command}")
        if command == "TIME":
            seconds, ms = divmod(self._runner.now_ms(), 1000)
            return lua_table([b"%d" % seconds, b"%d" % (ms * 1000)])
        try:
            reply = self._runner.reply_to((name.upper(), *args))
        except ResponseError as error:
            return lua_table({b"err": str(error).encode()})
        self._work.note(reply)
        if is_status(command, args) and isinstance(reply, bytes):
            return lua_table({b"ok": reply})
        return to_lua(reply)

    def _plain(self, value: Any) -> Any:
        """Convert the script's return value as Redis would; report what Redis would lose."""
        if is_table(value):
            if value[b"err"] is not None:
                raise ScriptError(f"{self._name}: {value[b'err'].decode()}")
            if value[b"ok"] is not None:
                return value[b"ok"]
            size = len(list(value.keys()))
            items = [value[i] for i in range(1, size + 1)]
            return [self._plain(item) for item in items]
        if isinstance(value, bytes):
            return value
        if value is None and self._contract is None:
            return None
        if isinstance(value, bool) or value is None:
            self._report(f"returns {value}, which Redis converts to 1 or which ends the reply")
        if not float(value).is_integer() or abs(value) > 2**53:
            self._report(f"returns {value}, which reaches the caller changed")
        return int(value)

    def _check_reply(self, reply: Any) -> None:
        contract = self._contract
        if contract is None:
            return
        limit = contract.most_calls(len(self._keys), len(self._args))
        if limit is not None and self._calls > limit:
            self._report(f"made {self._calls} calls, COST says at most {limit}")
        if not contract.returns or contract.returns[0].name != "error":
            return
        code = name_of(reply[0])
        if code != "NONE" and code not in contract.refuses + contract.signals:
            self._report(f"returned {code}, which is neither in REFUSES nor in SIGNALS")
        if code in contract.refuses and code not in contract.signals and self._wrote:
            self._report(f"refused with {code} after it had called {', '.join(self._wrote)}")


def _check_count(section: str, rows: Sequence[Row], given: int, report: Any) -> None:
    fixed = sum(not row.repeated for row in rows)
    repeated = len(rows) - fixed
    extra = given - fixed
    fits = extra == 0 if not repeated else extra >= 0 and extra % repeated == 0
    if not fits:
        report(f"takes {fixed}{' or more' if repeated else ''} {section}, and was given {given}")


def _encode_lua(word: Any) -> bytes:
    """Convert a Lua string or number to a command argument, as Redis does."""
    if isinstance(word, bytes):
        return word
    if isinstance(word, int | float) and not isinstance(word, bool):
        return b"%.17g" % word
    raise ContractViolation(f"a command was given {word!r}: strings and numbers only")
