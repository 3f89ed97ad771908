--- The entries of an append in `bytes` mode, where each of them takes offsets of its own number.
local M = {}

--- In args[at..last], for each entry: the offsets it takes, the number of its fields and values,
--- then those. A list of {last offset counted from the first of all, first field, last field}, the
--- offsets all of them take together, and those of the largest.
function M.read(args, at, last)
  local found, total, largest = {}, 0, 0
  while at <= last do
    local span, fields = tonumber(args[at]), tonumber(args[at + 1])
    total = total + span
    largest = math.max(largest, span)
    found[#found + 1] = { total - 1, at + 2, at + 1 + fields }
    at = at + 2 + fields
  end
  return found, total, largest
end

return M
