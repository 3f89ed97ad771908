--- A committed offset, as it is stored: "offset epoch time_ms expires_ms topic_id metadata".
---
--- `expires_ms` -1: the broker's retention decides. A bare offset, written by hand, is one too.
local M = {}

--- The text of a commit; everything is text already.
function M.text(offset, epoch, time_ms, expires_ms, topic_id, metadata)
  return table.concat({ offset, epoch, time_ms, expires_ms, topic_id, metadata }, " ")
end

--- When the commit was made and when it expires by its own words, ms; -1 where it does not say.
function M.times(text)
  local time_ms, expires_ms = string.match(text, "^%-?%d+ %-?%d+ (%-?%d+) (%-?%d+) ")
  return tonumber(time_ms or -1), tonumber(expires_ms or -1)
end

--- Commits past their time are gone. `since` is the moment the group lost its last member; nil for
--- a group that never had any. Returns the fields that went, and when to look again: nil when no
--- commit is left.
function M.expire(offsets, since, retention_ms, now_ms)
  local flat, gone, next_ms = redis.call("HGETALL", offsets), {}, nil
  for i = 1, #flat, 2 do
    local time_ms, expires_ms = M.times(flat[i + 1])
    local ends = expires_ms
    if ends < 0 then
      ends = math.max(since or time_ms, time_ms) + retention_ms
    end
    if time_ms >= 0 and ends <= now_ms then
      gone[#gone + 1] = flat[i]
      redis.call("HDEL", offsets, flat[i])
    elseif time_ms >= 0 then
      next_ms = math.min(next_ms or ends, ends)
    else
      next_ms = next_ms or now_ms + retention_ms
    end
  end
  return gone, next_ms
end

return M
