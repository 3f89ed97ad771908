--- A list of byte strings as one byte string: each with its length before it, "3:abc".
local num = require("lib.num")

local M = {}

--- The list as one string.
function M.pack(list)
  local parts = {}
  for i = 1, #list do
    parts[i] = num.text(#list[i]) .. ":" .. list[i]
  end
  return table.concat(parts)
end

--- The list that was packed.
function M.unpack(text)
  local list, at = {}, 1
  while at <= #text do
    local colon = string.find(text, ":", at, true)
    local size = tonumber(string.sub(text, at, colon - 1))
    list[#list + 1] = string.sub(text, colon + 1, colon + size)
    at = colon + size + 1
  end
  return list
end

return M
