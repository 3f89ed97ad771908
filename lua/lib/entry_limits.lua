--- The number of fields of an entry that a script can add.
local M = {}

-- Max fields and values of one XADD: Lua's stack holds 8,000 in every supported Redis.
M.MAX = 7990

--- Raise an error if there are more, before any write.
function M.check(count)
  if count > M.MAX then
    error("no batch: " .. count .. " fields and values of an entry, max " .. M.MAX, 0)
  end
end

return M
