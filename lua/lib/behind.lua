--- Where to append when XADD refused an id: behind whatever the stream ever held.
local entry = require("lib.entry")

local M = {}

--- The lowest offset behind everything the stream ever held.
function M.last(stream, mode, bits)
  local info = redis.call("XINFO", "STREAM", stream)
  for i = 1, #info, 2 do
    if info[i] == "last-generated-id" then
      return entry.behind(mode, bits, info[i + 1])
    end
  end
  return 0
end

return M
