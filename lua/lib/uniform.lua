--- The entries of an append whose records all have the same fields: the names are sent once.
local M = {}

--- A function (call, offset, at) that adds the entry whose values begin at `args[at]`. The names
--- stand from `args[names]` on, `fields` of them; `stamp` is the append time or false.
function M.adder(stream, id_of, args, names, fields, stamp)
  local row = { "XADD", stream, "" }
  if stamp then
    row[4], row[5] = "append.time", stamp
  end
  local before = #row
  for i = 1, fields do
    row[before + 2 * i - 1], row[before + 2 * i] = args[names + i - 1], ""
  end
  local width = #row
  return function(call, offset, at)
    row[3] = id_of(offset)
    for i = 1, fields do
      row[before + 2 * i] = args[at + i - 1]
    end
    return call(unpack(row, 1, width))
  end
end

return M
