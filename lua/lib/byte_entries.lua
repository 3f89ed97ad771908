--- The entries of an append in `bytes` mode, where each of them takes offsets of its own number.
local entry_limits = require("lib.entry_limits")

local M = {}

--- In args[at..last], for each entry: the offsets it takes, the number of its fields and values,
--- then those. A list of {last offset counted from the first of all, first field, last field}, the
--- offsets all of them take together, those of the largest, and where the last field of all is,
--- nil where these are no entries.
function M.read(args, at, last)
  local found, total, largest = {}, 0, 0
  while at <= last do
    local span, fields = tonumber(args[at]), tonumber(args[at + 1])
    if not (span and span >= 1 and fields and fields >= 2 and fields % 2 == 0) then
      return found, total, largest, nil
    end
    entry_limits.fit(fields)
    total = total + span
    largest = math.max(largest, span)
    found[#found + 1] = { total - 1, at + 2, at + 1 + fields }
    at = at + 2 + fields
  end
  return found, total, largest, at - 1
end

return M
