--- A committed offset, as it is stored: "offset epoch time_ms expires_ms topic_id metadata".
---
--- `expires_ms` -1: the broker's retention decides. A bare offset, written by hand, is one too.
local M = {}

local PAGE, PAGES = 1000, 4

--- The text of a commit; everything is text already.
function M.text(offset, epoch, time_ms, expires_ms, topic_id, metadata)
  return table.concat({ offset, epoch, time_ms, expires_ms, topic_id, metadata }, " ")
end

--- When the commit was made and when it expires by its own words, ms; -1 where it does not say.
function M.times(text)
  local time_ms, expires_ms = string.match(text, "^%-?%d+ %-?%d+ (%-?%d+) (%-?%d+) ")
  return tonumber(time_ms or -1), tonumber(expires_ms or -1)
end

--- Commits past their time are gone, of some thousand that are looked at: those from `cursor` on, "0"
--- at first. `since` is the moment the group lost its last member; nil for a group that never had any.
--- Returns the fields that went, when the first of the others will, which is not behind `next_ms`, nil
--- for none, and where to go on, "0" at the end.
function M.expire(offsets, since, retention_ms, now_ms, cursor, next_ms)
  local gone = {}
  for _ = 1, PAGES do
    local page, first = redis.call("HSCAN", offsets, cursor, "COUNT", PAGE), #gone + 1
    local flat = page[2]
    cursor = page[1]
    for i = 1, #flat, 2 do
      local time_ms, expires_ms = M.times(flat[i + 1])
      local ends = expires_ms
      if ends < 0 then
        ends = math.max(since or time_ms, time_ms) + retention_ms
      end
      if time_ms >= 0 and ends <= now_ms then
        gone[#gone + 1] = flat[i]
      elseif time_ms >= 0 then
        next_ms = math.min(next_ms or ends, ends)
      else
        next_ms = next_ms or now_ms + retention_ms
      end
    end
    for from = first, #gone, PAGE do
      redis.call("HDEL", offsets, unpack(gone, from, math.min(from + PAGE - 1, #gone)))
    end
    if cursor == "0" then
      break
    end
  end
  return gone, next_ms, cursor
end

return M
