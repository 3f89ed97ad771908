--- Create a partition's empty log.
local entry_id = require("lib.entry_id")

local M = {}

--- Raise an error, before any write, if a key has another type, or if in dense or bytes mode the
--- stream has entries whose ids have offsets.
function M.check(stream, log, mode)
  redis.call("HLEN", log)
  local tail = redis.call("XREVRANGE", stream, "+", "-", "COUNT", 1)[1]
  if tail and mode ~= "time"
    and tonumber(string.match(tail[1], "^%d+")) >= tonumber(entry_id.DENSE) then
    error(stream .. " has entries that stand where offsets will: the last is " .. tail[1], 0)
  end
end

--- Write the state hash of an empty log to `log`. In dense and bytes mode create the stream too, so
--- that a foreign XADD gets the next offset. In time mode the first XADD creates it. A reader of an
--- earlier `epoch` has read nothing of this log. `dedupe` is that of lib.dedupe without `since`, or
--- empty; `has_table` is "1", with offsets "2", or "0".
function M.open(stream, log, topic_id, format, mode, bits, dedupe, has_table, epoch)
  local more = {}
  local function put(field, value)
    more[#more + 1] = field
    more[#more + 1] = value
  end
  if epoch ~= "0" then
    put("epochs", epoch .. ":0:0:0")
  end
  if dedupe ~= "" then
    put("dedupe", dedupe .. ":0")
  end
  if has_table ~= "0" then
    put("table", "0")
  end
  if has_table == "2" then
    put("table_offsets", "1")
  end
  redis.call(
    "HSET", log, "topic_id", topic_id, "format", format, "mode", mode, "bits", bits, "epoch", epoch,
    "next", "0", "start", "0", "bytes", "0", "records", "0", "start_bytes", "0",
    "start_records", "0", "entries", "0", "max_timestamp", "-1",
    "indexed_bytes", "-1", "largest_append", "0",
    unpack(more)
  )
  if mode ~= "time" then
    entry_id.open_dense(stream)
  end
end

return M
