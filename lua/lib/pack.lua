--- Lists of byte strings as one byte string: "<length>:<bytes>" per item, such as "3:abc".
local num = require("lib.num")

local M = {}

--- Pack a list.
function M.pack(list)
  local parts = {}
  for i = 1, #list do
    parts[i] = num.text(#list[i]) .. ":" .. list[i]
  end
  return table.concat(parts)
end

--- Unpack a list.
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
