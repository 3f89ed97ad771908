--- Move a partition's log start, which deletes the records below it.
local index_rows = require("lib.index")
local num = require("lib.num")

local M = {}

-- Remove the entries below `target`; return how many.
local function trim(stream, log, map, target)
  local removed = redis.call("XTRIM", stream, "MINID", map:id(target))
  redis.call("HINCRBY", log, "trimmed", removed)
  return removed
end

--- Start the log at `target`: delete the entries and index rows below it.
--- In batch layout a batch that reaches past `target` stays whole. Return the entries removed.
function M.move_start(stream, log, index, map, target)
  redis.call("HDEL", log, "local_start")
  return M.trim_local(stream, log, index, map, target, "start")
end

--- Delete the entries and index rows below `target`, whose records are in segments: the log start
--- stays, the local part starts at `target`. Return the entries removed.
function M.trim_local(stream, log, index, map, target, field)
  local removed = trim(stream, log, map, target)
  local bytes, records, row = index_rows.totals_below(index, log, target)
  if row then
    redis.call("ZREMRANGEBYSCORE", index, "-inf", "(" .. num.text(row.offset))
  end
  redis.call(
    "HSET", log, field or "local_start", num.text(target),
    "start_bytes", num.text(bytes), "start_records", num.text(records)
  )
  return removed
end

--- Empty the log and start it at its end, `target`, which foreign entries may have moved. Reset its
--- max timestamp: one far in the future would otherwise block retention for good.
function M.empty(stream, log, index, map, target, bytes, records)
  local removed = trim(stream, log, map, target)
  redis.call("UNLINK", index)
  redis.call("HDEL", log, "local_start")
  redis.call(
    "HSET", log, "start", num.text(target), "next", num.text(target),
    "start_bytes", num.text(bytes),
    "start_records", num.text(records), "indexed_bytes", "-1",
    "max_timestamp", "-1", "untimed_append_ms", "-1"
  )
  local counted = redis.call("HGET", log, "counted")
  if counted then
    redis.call("HSET", log, "counted", (string.gsub(counted, "%-?%d+$", "-1")))
  end
  return removed
end

return M
