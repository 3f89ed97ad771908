--- Moving a partition's log start: the only code that removes records.
local entry_id = require("lib.entry_id")
local index_rows = require("lib.index")
local num = require("lib.num")

local M = {}

--- The log starts at `target`: older entries, index rows and their bytes are gone.
--- In batch layout a batch that reaches past `target` stays whole. Returns the entries removed.
function M.to(stream, log, index, mode, bits, target)
  local removed = redis.call("XTRIM", stream, "MINID", entry_id.id(mode, bits, target))
  local row = index_rows.last(index, function(candidate)
    return candidate.offset <= target
  end)
  local pairs_to_set = { "start", num.text(target) }
  if row then
    redis.call("ZREMRANGEBYSCORE", index, "-inf", "(" .. num.text(row.offset))
    pairs_to_set[3], pairs_to_set[4] = "start_bytes", num.text(row.bytes)
    pairs_to_set[5], pairs_to_set[6] = "start_records", num.text(row.records)
  end
  redis.call("HSET", log, unpack(pairs_to_set))
  return removed
end

--- The log is empty and starts at its end, `target`, which native entries may have moved. What it
--- held is no newer than anything: one time in the far future would else hold up retention for good.
function M.all(stream, log, index, mode, bits, target, bytes, records)
  local removed = redis.call("XTRIM", stream, "MINID", entry_id.id(mode, bits, target))
  redis.call("UNLINK", index)
  redis.call(
    "HSET", log, "start", num.text(target), "next", num.text(target), "start_bytes", num.text(bytes),
    "start_records", num.text(records), "indexed_bytes", "-1",
    "max_timestamp", "-1", "untimed_append_ms", "-1"
  )
  return removed
end

return M
