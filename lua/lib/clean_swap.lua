--- Replace a log's stream with its compacted copy.
local fields = require("lib.fields")
local num = require("lib.num")

local M = {}

-- Max bytes of a copy that grows although Redis is full.
local FULL_BYTES = 64 * 1024 * 1024
-- Max delete horizons within tombstone_ms: closer compactions add none.
local STEPS = 64

--- Return whether the copy, of `length` entries of the log's average size, is small enough to grow
--- although Redis is full.
function M.is_small(length, bytes, entries)
  return length * tonumber(bytes or 0) / math.max(tonumber(entries or 0), 1) < FULL_BYTES
end

--- Return the id of the last entry, nil for an empty stream.
function M.last(stream)
  local tail = redis.call("XREVRANGE", stream, "+", "-", "COUNT", 1)[1]
  return tail and tail[1]
end

--- Return the lower of two ids. Their numbers are too large for doubles.
function M.lower(a, b)
  local a_ms, a_seq = string.match(a, "^(%d+)%-(%d+)$")
  local b_ms, b_seq = string.match(b, "^(%d+)%-(%d+)$")
  local one, other = a_ms, b_ms
  if one == other then
    one, other = a_seq, b_seq
  end
  return (#one < #other or #one == #other and one < other) and a or b
end

--- Give the copy the last id `last`, or the stream's, and its groups with their last delivered ids,
--- of which none is above that.
function M.take_over(stream, compacted, last)
  if redis.call("EXISTS", compacted) == 0 then
    redis.call("XGROUP", "CREATE", compacted, "korvet", "$", "MKSTREAM")
    redis.call("XGROUP", "DESTROY", compacted, "korvet")
  end
  local info = redis.call("XINFO", "STREAM", stream)
  last = last or fields.get(info, "last-generated-id")
  redis.call("XSETID", compacted, last)
  for _, group in ipairs(redis.call("XINFO", "GROUPS", stream)) do
    local name, last_id = fields.get(group, "name"), fields.get(group, "last-delivered-id")
    redis.call("XGROUP", "CREATE", compacted, name, M.lower(last_id, last))
  end
end

--- Return the delete horizons after a compaction up to `limit`, "offset:time,...". Those older than
--- `tombstone_ms` are dropped: their tombstones are removed.
function M.horizons(text, limit, tombstones, tombstone_ms, now_ms)
  local kept, newest = {}, 0
  for at, time in string.gmatch(text, "(%d+):(%d+)") do
    if now_ms - tonumber(time) < tombstone_ms then
      kept[#kept + 1] = at .. ":" .. time
      newest = tonumber(time)
    end
  end
  if tombstones and (#kept == 0 or now_ms - newest >= tombstone_ms / STEPS) then
    kept[#kept + 1] = num.text(limit) .. ":" .. num.text(now_ms)
  end
  return table.concat(kept, ",")
end

return M
