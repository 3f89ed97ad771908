--- Where a stream ends, whatever has been removed from it since.
local entry_id = require("lib.entry_id")

local M = {}

--- The lowest offset behind everything that was ever in the stream, removed or not; 0 for nothing.
function M.behind_all(mode, bits, stream)
  local info = redis.pcall("XINFO", "STREAM", stream)
  for i = 1, info.err and 0 or #info, 2 do
    if info[i] == "last-generated-id" and info[i + 1] ~= "0-0" then
      return entry_id.behind(mode, bits, info[i + 1])
    end
  end
  return 0
end

return M
