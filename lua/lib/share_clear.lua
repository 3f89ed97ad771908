--- Remove the rows of a share group from a partition's sorted set.
local M = {}

local PAGE = 1000

--- Remove all rows of the group, a page at a time.
function M.rows(runs, group)
  repeat
    local found = redis.call(
      "ZRANGE", runs, "[" .. group .. ":", "(" .. group .. ";", "BYLEX", "LIMIT", 0, PAGE
    )
    if #found > 0 then
      redis.call("ZREM", runs, unpack(found))
    end
  until #found < PAGE
end

return M
