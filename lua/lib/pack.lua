--- Lists of byte strings as one byte string: "<length>:<bytes>" per item, such as "3:abc".
local num = require("lib.num")

local M = {}

--- Pack a list.
function M.pack(list)
  local parts = {}
  for i = 1, #list do
    parts[i] = num.small(#list[i]) .. ":" .. list[i]
  end
  return table.concat(parts)
end

--- Unpack a list, to the end of `list` if one is given.
function M.unpack(text, list)
  list = list or {}
  if text == "" then
    return list
  end
  local find, sub = string.find, string.sub
  local n, at, size = #list, 1, #text
  while at <= size do
    local colon = find(text, ":", at, true)
    local last = colon + sub(text, at, colon - 1)
    n = n + 1
    list[n] = sub(text, colon + 1, last)
    at = last + 1
  end
  return list
end

return M
