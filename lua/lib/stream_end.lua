--- Find the end of a stream, including entries removed since.
local entry_id = require("lib.entry_id")

local M = {}

--- Return the lowest offset above every entry ever in the stream, removed or not; 0 for none.
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
