--- The stream that takes a log's place once the log is compacted.
local num = require("lib.num")

local M = {}

-- How finely the moments of compactions are remembered: so many within the life of a tombstone.
local STEPS = 64

local function field(row, name)
  for i = 1, #row, 2 do
    if row[i] == name then
      return row[i + 1]
    end
  end
  return nil
end

--- The id of the last entry, or nil for a stream without any.
function M.last(stream)
  local tail = redis.call("XREVRANGE", stream, "+", "-", "COUNT", 1)[1]
  return tail and tail[1]
end

--- The twin goes on where the stream is: its last id, and the groups that read it.
function M.take_over(stream, twin)
  if redis.call("EXISTS", twin) == 0 then
    redis.call("XGROUP", "CREATE", twin, "korvet", "$", "MKSTREAM")
    redis.call("XGROUP", "DESTROY", twin, "korvet")
  end
  redis.call("XSETID", twin, field(redis.call("XINFO", "STREAM", stream), "last-generated-id"))
  for _, group in ipairs(redis.call("XINFO", "GROUPS", stream)) do
    redis.call("XGROUP", "CREATE", twin, field(group, "name"), field(group, "last-delivered-id"))
  end
end

--- Up to where a compaction has been and when, "offset:time,...": the old ones and this one. Those
--- whose tombstones are due are over.
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
