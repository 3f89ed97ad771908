"""The Lua 5.1 runtime of LuaRunner: the globals and functions that Redis offers to scripts."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from lupa import lua51

from korvet.scripts import bundle
from korvet.scripts.call import Arg

# The environment of a script: the part of Redis's that the scripts of this project use.
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

local function compile_after(before, path)
  local file = assert(io.open(path))
  local chunk, message = loadstring(before .. file:read("*a"), "@" .. path)
  file:close()
  if not chunk then
    error(message, 0)
  end
  return chunk
end

return function(path, root, keys, args, command, violation, step, before)
  debug.sethook(function() step() end, "", @STEP@)
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
  return setfenv(before and compile_after(before, path) or compile(path), env)()
end
"""

_LIBRARY = """
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

_LIMITED = """
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

LuaError = lua51.LuaError
STEP = 1000
"""VM instructions after which a script's run calls `step`."""


@cache
def runtime() -> Any:
    """Return the one Lua runtime of this process; its strings are bytes."""
    return lua51.LuaRuntime(
        encoding=None, source_encoding="utf-8", unpack_returned_tuples=False, register_eval=False
    )


@cache
def sandbox() -> Any:
    """Return the Lua function that runs a script file with KEYS, ARGV and Python's functions."""
    return runtime().execute(_SANDBOX.replace("@STEP@", str(STEP)))


def lua_table(items: Any) -> Any:
    """Convert a sequence or mapping to a Lua table."""
    return runtime().table_from(items)


def is_table(value: Any) -> bool:
    """Return whether a value from Lua is a table."""
    return bool(lua51.lua_type(value) == "table")


def library(name: str, redis: dict[str, Any] | None = None) -> Any:
    """Load a library of lua/lib as a Lua table, without Redis; `redis` may provide a `call`."""
    bound = lua_table({key.encode(): value for key, value in (redis or {}).items()})
    require = runtime().execute(_LIBRARY)(str(bundle.default_root()).encode(), bound)
    return require(name.encode())


def within(function: Any, instructions: int) -> Any:
    """Wrap a Lua function so that it fails after this many VM instructions."""
    return runtime().execute(_LIMITED)(function, instructions)


def encode(arg: Arg) -> bytes:
    """Convert an argument of a call to the bytes Redis would receive."""
    if isinstance(arg, str):
        return arg.encode()
    return b"%d" % arg if isinstance(arg, int) else bytes(arg)


def to_lua(reply: Any) -> Any:
    """Convert a Redis reply to what `redis.call` returns: nil is false, an array a table."""
    if reply is None:
        return False
    if isinstance(reply, Sequence) and not isinstance(reply, bytes | str):
        return lua_table([to_lua(item) for item in reply])
    return reply
