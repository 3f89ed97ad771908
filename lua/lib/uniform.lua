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

--- A function (call, offset, n) that adds entry `n`, counted from 0, of columns: from `args[at]` on
--- stand the number of fields and, for each, its name, how long every value is or -1, the lengths
--- where they differ, four bytes each and the lowest first, and all values one behind another.
function M.columns(stream, id_of, args, at, stamp)
  local row, columns = { "XADD", stream, "" }, {}
  if stamp then
    row[4], row[5] = "append.time", stamp
  end
  for i = 1, tonumber(args[at]) do
    local from = at + 4 * i - 3
    row[#row + 1], row[#row + 2] = args[from], ""
    columns[i] = {
      place = #row, length = tonumber(args[from + 1]), lengths = args[from + 2],
      values = args[from + 3], next = 1,
    }
  end
  local width = #row
  return function(call, offset, n)
    row[3] = id_of(offset)
    for i = 1, #columns do
      local column = columns[i]
      local length = column.length
      if length < 0 then
        local a, b, c, d = string.byte(column.lengths, 4 * n + 1, 4 * n + 4)
        length = a + 256 * (b + 256 * (c + 256 * d))
      end
      -- The first entry may be added twice: the first time in vain.
      local first = n > 0 and column.next or 1
      column.next = first + length
      row[column.place] = string.sub(column.values, first, column.next - 1)
    end
    return call(unpack(row, 1, width))
  end
end

return M
