--- Remove the rows of a share group from a partition's sorted set.
local M = {}

local PAGE = 1000

-- Remove the rows of the group from `from` up to `to`, a page at a time.
local function remove(runs, group, from, to)
  repeat
    local found = redis.call(
      "ZRANGE", runs, "[" .. group .. from, "(" .. group .. to, "BYLEX", "LIMIT", 0, PAGE
    )
    if #found > 0 then
      redis.call("ZREM", runs, unpack(found))
    end
  until #found < PAGE
end

--- Remove all rows of the group.
function M.rows(runs, group)
  remove(runs, group, ":", ";")
end

--- Remove the rows of the group's records, but not its dead letters.
function M.records(runs, group)
  remove(runs, group, ":", ":d")
  remove(runs, group, ":e", ";")
end

return M
