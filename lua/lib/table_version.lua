--- What tells a table that was changed from the one it was: a number that grows with each change.
local clock = require("lib.clock")
local num = require("lib.num")

local M = {}

--- The hash has a version it never had, and whoever listens on its channel knows. Returns it. Not
--- one more than the last: a Redis that lost its last changes, or all of them, would count the
--- next ones like those, and who had read those would never read these.
function M.raise(key)
  local last = tonumber(redis.call("HGET", key, ":version") or 0)
  local version = math.max(last + 1, clock.now_ms())
  redis.call("HSET", key, ":version", num.text(version))
  redis.call("PUBLISH", key, num.text(version))
  return version
end

return M
