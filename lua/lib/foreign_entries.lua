--- Detect foreign entries: those that Korvet's scripts did not add.
local fields = require("lib.fields")
local stream_end = require("lib.stream_end")

local M = {}

--- The fields of the log hash that M.may_exist reads, in this order.
M.FIELDS = {
  "format", "mode", "bits", "start", "records", "start_records", "next", "entries", "cleaned",
}

-- Return the number of entries ever added to the stream, removed or not; nil before Redis 7.
local function added(stream)
  return fields.get(redis.call("XINFO", "STREAM", stream), "entries-added")
end

--- Return whether the stream may have foreign entries; `values` are those of M.FIELDS. Transaction
--- markers are entries without records, too. Dense mode therefore compares the end offset with the
--- entries appended. Time mode compares them with XLEN, and with Redis 7's count of entries ever
--- added if the log start has moved; a cleaned log always may have foreign entries.
function M.may_exist(stream, values)
  local mode, length = values[2], redis.call("XLEN", stream)
  local entries = tonumber(values[8])
  if values[1] ~= "record" or length <= tonumber(values[5]) - tonumber(values[6]) then
    return false
  end
  if mode == "time" then
    return length > entries or values[9] ~= false
      or tonumber(values[4]) > 0 and added(stream) ~= entries
  end
  -- Each entry that was appended took one offset.
  local ends = stream_end.offset_after(mode, tonumber(values[3]), stream)
  return math.max(tonumber(values[7]), ends) > entries
end

return M
