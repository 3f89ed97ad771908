--- A committed offset as it is stored: "offset epoch time_ms expires_ms topic_id metadata".
---
--- `expires_ms` -1: the broker's retention applies. A bare offset, written by hand, is valid too.
local chunks = require("lib.chunks")

local M = {}

local PAGE, PAGES = 1000, 4

--- Format a commit; all parts are text.
function M.format(offset, epoch, time_ms, expires_ms, topic_id, metadata)
  return table.concat({ offset, epoch, time_ms, expires_ms, topic_id, metadata }, " ")
end

--- Return when the commit was made and when it expires, ms; -1 for what it does not contain.
function M.times(text)
  local time_ms, expires_ms = string.match(text, "^%-?%d+ %-?%d+ (%-?%d+) (%-?%d+) ")
  return tonumber(time_ms or -1), tonumber(expires_ms or -1)
end

--- Delete expired commits, scanning at most 4,000 commits from `cursor` on, "0" at first. `since`
--- is when the group lost its last member; nil for a group that never had any.
--- Return the deleted fields, the earliest expiry of the remaining commits (never later than
--- `next_ms`, nil for none), and the next cursor, "0" at the end.
function M.expire(offsets, since, retention_ms, now_ms, cursor, next_ms)
  local expired = {}
  for _ = 1, PAGES do
    local page, first = redis.call("HSCAN", offsets, cursor, "COUNT", PAGE), #expired + 1
    local flat = page[2]
    cursor = page[1]
    for i = 1, #flat, 2 do
      local time_ms, expires_ms = M.times(flat[i + 1])
      local ends = expires_ms
      if ends < 0 then
        ends = math.max(since or time_ms, time_ms) + retention_ms
      end
      if time_ms >= 0 and ends <= now_ms then
        expired[#expired + 1] = flat[i]
      elseif time_ms >= 0 then
        next_ms = math.min(next_ms or ends, ends)
      else
        next_ms = next_ms or now_ms + retention_ms
      end
    end
    chunks.call("HDEL", offsets, expired, first)
    if cursor == "0" then
      break
    end
  end
  return expired, next_ms, cursor
end

return M
