--- Whether somebody else has added entries to a log: the scripts' own counts tell.
local ends = require("lib.ends")

local M = {}

--- What M.among looks at: fields of the log hash, side by side.
M.FIELDS = { "format", "mode", "bits", "start", "records", "start_records", "next", "entries", "cleaned" }

--- Whether there may be native entries in the stream; `values` are those of M.FIELDS. Markers of
--- transactions are entries and no records, too: what tells them from native ones are, in dense
--- mode, the offsets taken, and, in time mode, the entries, as long as nothing has left the log.
function M.among(stream, values)
  local mode, length = values[2], redis.call("XLEN", stream)
  local entries = tonumber(values[8])
  if values[1] ~= "record" or length <= tonumber(values[5]) - tonumber(values[6]) then
    return false
  end
  if mode == "time" then
    return length > entries or tonumber(values[4]) > 0 or values[9] ~= false
  end
  -- Each entry that was appended took one offset.
  return math.max(tonumber(values[7]), ends.behind_all(mode, tonumber(values[3]), stream)) > entries
end

return M
