--- Whether somebody else has added entries to a log: the scripts' own counts tell.
local stream_end = require("lib.stream_end")

local M = {}

--- What M.among looks at: fields of the log hash, side by side.
M.FIELDS = { "format", "mode", "bits", "start", "records", "start_records", "next", "entries", "cleaned" }

-- How many entries were ever added to the stream, gone or not; nil before Redis 7.
local function added(stream)
  local info = redis.call("XINFO", "STREAM", stream)
  for i = 1, #info, 2 do
    if info[i] == "entries-added" then
      return info[i + 1]
    end
  end
end

--- Whether there may be native entries in the stream; `values` are those of M.FIELDS. Markers of
--- transactions are entries and no records, too: what tells them from native ones are, in dense
--- mode, the offsets taken, and, in time mode, the entries, those that Redis counted or, before Redis
--- 7, those that are there, as long as nothing has left the log.
function M.among(stream, values)
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
  return math.max(tonumber(values[7]), stream_end.behind_all(mode, tonumber(values[3]), stream)) > entries
end

return M
