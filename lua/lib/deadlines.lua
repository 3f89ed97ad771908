--- The deadlines of a group: a sorted set, member id or phase -> moment, ms.
---
--- Every script on a group checks them first and answers TICK_FIRST if one has passed: so no
--- decision counts a member whose session has expired.
local num = require("lib.num")

local M = {}

-- The entry that makes group.tick expire committed offsets of an Empty group.
M.OFFSETS = ":offsets"
-- Ms from the moment a group becomes Empty to its first such check, which knows the retention.
M.OFFSETS_CHECK_MS = 60000

--- Return the earliest entry and its moment; nothing if there is none.
function M.first(deadlines)
  local row = redis.call("ZRANGE", deadlines, 0, 0, "WITHSCORES")
  if row[1] then
    return row[1], tonumber(row[2])
  end
end

--- Return the ms until the earliest deadline: -1 without any, 0 if it has passed.
function M.wait_ms(deadlines, now_ms)
  local _, moment = M.first(deadlines)
  return moment and math.max(0, moment - now_ms) or -1
end

--- Return whether a deadline has passed.
function M.passed(deadlines, now_ms)
  return M.wait_ms(deadlines, now_ms) == 0
end

--- Set a deadline.
function M.set(deadlines, name, moment)
  redis.call("ZADD", deadlines, num.text(moment), name)
end

--- Schedule a check for expired offsets, unless one is scheduled.
function M.check_offsets(deadlines, now_ms)
  redis.call("ZADD", deadlines, "NX", num.text(now_ms + M.OFFSETS_CHECK_MS), M.OFFSETS)
end

return M
