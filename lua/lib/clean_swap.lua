--- Replace a log's stream with its compacted copy.
local num = require("lib.num")

local M = {}

-- Max delete horizons within tombstone_ms: closer compactions add none.
local STEPS = 64

local function field(row, name)
  for i = 1, #row, 2 do
    if row[i] == name then
      return row[i + 1]
    end
  end
  return nil
end

--- Return the id of the last entry, nil for an empty stream.
function M.last(stream)
  local tail = redis.call("XREVRANGE", stream, "+", "-", "COUNT", 1)[1]
  return tail and tail[1]
end

--- Give the copy the stream's last id, and its groups with their last delivered ids.
function M.take_over(stream, compacted)
  if redis.call("EXISTS", compacted) == 0 then
    redis.call("XGROUP", "CREATE", compacted, "korvet", "$", "MKSTREAM")
    redis.call("XGROUP", "DESTROY", compacted, "korvet")
  end
  redis.call("XSETID", compacted, field(redis.call("XINFO", "STREAM", stream), "last-generated-id"))
  for _, group in ipairs(redis.call("XINFO", "GROUPS", stream)) do
    redis.call("XGROUP", "CREATE", compacted, field(group, "name"), field(group, "last-delivered-id"))
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
