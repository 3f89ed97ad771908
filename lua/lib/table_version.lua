--- The version of a table: a number that grows with each change.
local clock = require("lib.clock")
local num = require("lib.num")

local M = {}

--- Raise the hash's version, publish it on the channel with the key's name, and return it. It is at
--- least the clock's ms: if Redis lost changes, the last version plus one could repeat one that
--- brokers have read, and they would miss the change.
function M.raise(key)
  local last = tonumber(redis.call("HGET", key, ":version") or 0)
  local version = math.max(last + 1, clock.now_ms())
  redis.call("HSET", key, ":version", num.text(version))
  redis.call("PUBLISH", key, num.text(version))
  return version
end

return M
