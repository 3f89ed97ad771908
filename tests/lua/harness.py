"""Runs scripts under a watched Lua 5.1, without a server.

`LuaRunner` takes the same calls as the stores. The files of `lua/` run as they are: `require`
loads the library's own file. `redis.call` goes to a private fakeredis, TIME is a clock that the
test holds. As every command passes through here, each run is also checked for what no server
would notice; a `ContractViolation` says which of these does not hold:

- a key that is touched is in KEYS
- no global is read that Redis does not have, and none is written
- at most as many commands as COST says
- the answered error is in REFUSES or SIGNALS, and after one of REFUSES nothing was written
- a script that `reads` writes nothing
- the number of KEYS and ARGV is the header's; an `int` argument is one
- the reply has no holes, no fractions and no booleans, and fits its struct
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

from lupa import lua51
from redis.exceptions import ResponseError

from korvet.errors import ErrorCode
from korvet.scripts import bundle
from korvet.scripts.call import Arg, Call, Reply
from korvet.scripts.contract import Contract, Row
from tests.fakes import fake_redis
from tests.lua.commands import WRITES, is_status, keys_of

R = TypeVar("R", bound=Reply)

START_MS = 1_750_000_000_000

# The environment of a script: what our house style allows of what Redis offers.
_SANDBOX = """
local chunks, names = {}, {
  "assert", "error", "getmetatable", "ipairs", "math", "next", "pairs", "pcall", "rawequal",
  "rawget", "rawset", "select", "setmetatable", "string", "table", "tonumber", "tostring", "type",
  "unpack", "xpcall",
}

local function compile(path)
  if not chunks[path] then
    local chunk, message = loadfile(path)
    if not chunk then
      error(message, 0)
    end
    chunks[path] = chunk
  end
  return chunks[path]
end

return function(path, root, keys, args, command, violation)
  local env, loaded = {}, {}
  for _, name in ipairs(names) do
    env[name] = _G[name]
  end
  env.KEYS, env.ARGV = keys, args
  env.redis = {
    pcall = command,
    call = function(...)
      local reply = command(...)
      if type(reply) == "table" and reply.err then
        error(reply.err, 0)
      end
      return reply
    end,
    error_reply = function(text) return { err = text } end,
    status_reply = function(text) return { ok = text } end,
  }
  env.require = function(name)
    if loaded[name] == nil then
      loaded[name] = setfenv(compile(root .. "/" .. string.gsub(name, "%.", "/") .. ".lua"), env)()
    end
    return loaded[name]
  end
  setmetatable(env, {
    __index = function(_, name) violation("reads the global " .. tostring(name)) end,
    __newindex = function(_, name) violation("writes the global " .. tostring(name)) end,
  })
  return setfenv(compile(path), env)()
end
"""


class ContractViolation(AssertionError):
    """A script did what its header rules out."""


class ScriptError(Exception):
    """A script ended with a Lua or Redis error."""


class LuaRunner:
    """Runs calls on an empty Redis of its own, at a time that only `advance` moves."""

    def __init__(self) -> None:
        self.redis = fake_redis()
        self.redis.response_callbacks = {}
        self._now_ms = START_MS

    def now_ms(self) -> int:
        """What the scripts take for the time."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """The clock has moved."""
        self._now_ms += ms

    def run(self, call: Call[R]) -> R:
        """The call's reply; ContractViolation when the run broke a rule."""
        return call.decode(_Run(self, call).result())

    def run_many(self, calls: Iterable[Call[R]]) -> list[R]:
        """The replies in the order of the calls."""
        return [self.run(call) for call in calls]

    def command(self, *command: Arg) -> Any:
        """The raw reply to a plain command, straight from fakeredis."""
        return self.redis.execute_command(*map(_encode, command))


class _Run:
    """One run of one call, and everything it did."""

    def __init__(self, runner: LuaRunner, call: Call[Any]) -> None:
        self._runner = runner
        self._call = call
        self._root = call.script.root or bundle.default_root()
        self._contract: Contract = call.script.contract
        self._keys = [key.encode() for key in call.keys]
        self._calls = 0
        self._wrote: list[str] = []
        self._violation = ""

    def result(self) -> list[Any]:
        keys, args = self._keys, [_encode(arg) for arg in self._call.args]
        _check_count("KEYS", self._contract.keys, len(keys), self._say)
        _check_count("ARGV", self._contract.args, len(args), self._say)
        self._check_ints(args)
        lua = _lua()
        path = self._root / (self._contract.name.replace(".", "/") + ".lua")
        try:
            raw = _sandbox()(
                str(path).encode(),
                str(self._root).encode(),
                lua.table_from(keys),
                lua.table_from(args),
                self._command,
                self._say,
            )
        except lua51.LuaError as error:
            self._raise_violation()
            raise ScriptError(f"{self._contract.name}: {error}") from None
        self._raise_violation()
        reply = self._plain(raw)
        self._check_reply(reply)
        self._raise_violation()
        return reply

    def _say(self, what: str | bytes) -> None:
        text = what.decode() if isinstance(what, bytes) else what
        self._violation = self._violation or text
        self._raise_violation()

    def _raise_violation(self) -> None:
        if self._violation:
            raise ContractViolation(f"{self._contract.name} {self._violation}")

    def _check_ints(self, args: Sequence[bytes]) -> None:
        for row, arg in zip(self._contract.args, args, strict=False):
            if row.type == "int" and not row.repeated:
                try:
                    int(arg)
                except ValueError:
                    self._say(f"got {arg!r} for the int {row.name}")

    def _command(self, *words: Any) -> Any:
        name, *args = [_encode_lua(word) for word in words]
        command = name.decode().upper()
        self._calls += 1
        for key in keys_of(command, args):
            if key not in self._keys:
                self._say(f"touches {key.decode(errors='replace')!r}, which is not in KEYS")
        if command in WRITES:
            self._wrote.append(command)
            if not self._contract.writes:
                self._say(f"says that it only reads, and calls {command}")
        lua = _lua()
        if command == "TIME":
            seconds, ms = divmod(self._runner.now_ms(), 1000)
            return lua.table_from([b"%d" % seconds, b"%d" % (ms * 1000)])
        try:
            reply = self._runner.redis.execute_command(command, *args)
        except ResponseError as error:
            return lua.table_from({b"err": str(error).encode()})
        if is_status(command, args) and isinstance(reply, bytes):
            return lua.table_from({b"ok": reply})
        return _to_lua(reply)

    def _plain(self, value: Any) -> Any:
        """A Lua value as Redis would send it, provided that nothing is lost on the way."""
        if lua51.lua_type(value) == "table":
            if value[b"err"] is not None:
                raise ScriptError(f"{self._contract.name}: {value[b'err'].decode()}")
            size = len(list(value.keys()))
            items = [value[i] for i in range(1, size + 1)]
            return [self._plain(item) for item in items]
        if isinstance(value, bytes):
            return value
        if isinstance(value, bool) or value is None:
            self._say(f"answers with {value}, which Redis turns into 1 or ends the reply at")
        if not float(value).is_integer() or abs(value) > 2**53:
            self._say(f"answers with {value}, which does not reach the caller unharmed")
        return int(value)

    def _check_reply(self, reply: Any) -> None:
        contract = self._contract
        limit = contract.most_calls(len(self._keys), len(self._call.args))
        if limit is not None and self._calls > limit:
            self._say(f"made {self._calls} calls, COST says at most {limit}")
        if not contract.returns or contract.returns[0].name != "error":
            return
        code = ErrorCode(reply[0]).name
        if code != "NONE" and code not in contract.refuses + contract.signals:
            self._say(f"answered {code}, which is neither in REFUSES nor in SIGNALS")
        if code in contract.refuses and code not in contract.signals and self._wrote:
            self._say(f"refused with {code} after it had called {', '.join(self._wrote)}")


def _check_count(section: str, rows: Sequence[Row], given: int, say: Any) -> None:
    fixed = sum(not row.repeated for row in rows)
    repeated = len(rows) - fixed
    extra = given - fixed
    fits = extra == 0 if not repeated else extra >= 0 and extra % repeated == 0
    if not fits:
        say(f"takes {fixed}{' or more' if repeated else ''} {section}, and was given {given}")


@cache
def _lua() -> Any:
    return lua51.LuaRuntime(
        encoding=None, source_encoding="utf-8", unpack_returned_tuples=False, register_eval=False
    )


@cache
def _sandbox() -> Any:
    return _lua().execute(_SANDBOX)


def _encode(arg: Arg) -> bytes:
    if isinstance(arg, str):
        return arg.encode()
    return b"%d" % arg if isinstance(arg, int) else bytes(arg)


def _encode_lua(word: Any) -> bytes:
    """A Lua string or number as an argument of a command, as Redis writes it."""
    if isinstance(word, bytes):
        return word
    if isinstance(word, int | float) and not isinstance(word, bool):
        return b"%.17g" % word
    raise ContractViolation(f"a command was given {word!r}: strings and numbers only")


def _to_lua(reply: Any) -> Any:
    if reply is None:
        return False
    if isinstance(reply, list | tuple):
        return _lua().table_from([_to_lua(item) for item in reply])
    return reply


def lua_table(items: Sequence[Any]) -> Any:
    """The items as a Lua table, for what a test hands to a library."""
    return _lua().table_from(items)


def library(name: str, redis: dict[str, Any] | None = None) -> Any:
    """A library's table, as Lua has it, for a test without any Redis. `redis` may hold a `call`."""
    load = _lua().execute(
        """
        return function(root, redis)
          local env, loaded = setmetatable({ redis = redis }, { __index = _G }), {}
          env.require = function(name)
            if loaded[name] == nil then
              local path = root .. "/" .. string.gsub(name, "%.", "/") .. ".lua"
              loaded[name] = setfenv(assert(loadfile(path)), env)()
            end
            return loaded[name]
          end
          return env.require
        end
        """
    )
    bound = _lua().table_from({key.encode(): value for key, value in (redis or {}).items()})
    return load(str(bundle.default_root()).encode(), bound)(name.encode())


def within(function: Any, instructions: int) -> Any:
    """The function, which fails after so many instructions of Lua: time, without a clock."""
    return _lua().execute(
        """
        return function(f, most)
          return function(...)
            debug.sethook(function() error("too many instructions", 0) end, "", most)
            local found = { pcall(f, ...) }
            debug.sethook()
            assert(table.remove(found, 1), found[1])
            return unpack(found)
          end
        end
        """
    )(function, instructions)
