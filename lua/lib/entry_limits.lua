--- How many fields an entry can have that a script adds.
local M = {}

-- So many fields and values of one XADD Lua's stack holds everywhere: it ends at 8,000.
M.MOST = 7990

--- Raises where these are more, before anything is written.
function M.fit(count)
  if count > M.MOST then
    error("no batch: " .. count .. " fields and values of an entry, " .. M.MOST .. " at most", 0)
  end
end

return M
