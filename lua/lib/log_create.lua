--- A partition's log as it is on its first day.
local entry_id = require("lib.entry_id")

local M = {}

--- Raises where one of the keys is of another type, before anything is written to others, and where
--- in dense or bytes mode the stream holds entries that have offsets already.
function M.check(stream, log, mode)
  redis.call("HLEN", log)
  local tail = redis.call("XREVRANGE", stream, "+", "-", "COUNT", 1)[1]
  if tail and mode ~= "time" and tonumber(string.match(tail[1], "^%d+")) >= tonumber(entry_id.DENSE) then
    error(stream .. " has entries that stand where offsets will: the last is " .. tail[1], 0)
  end
end

--- The state hash of an empty log stands at `log`. In dense and bytes mode the stream exists too,
--- so that a native XADD lands on the next offset; in time mode Redis makes it with the first XADD.
function M.open(stream, log, topic_id, format, mode, bits)
  redis.call(
    "HSET", log, "topic_id", topic_id, "format", format, "mode", mode, "bits", bits, "epoch", "0",
    "next", "0", "start", "0", "bytes", "0", "records", "0", "start_bytes", "0",
    "start_records", "0", "entries", "0", "max_timestamp", "-1", "indexed_bytes", "-1", "largest_append", "0"
  )
  if mode ~= "time" then
    entry_id.open_dense(stream)
  end
end

return M
