--- The entries of an append whose records all have the same fields: the names are sent once.
local M = {}

local byte, sub = string.byte, string.sub

--- A function (call, offset, at) that adds the entry whose values begin at `args[at]`. The names
--- stand from `args[names]` on, `fields` of them; `stamp` is the append time or false.
function M.adder(stream, id_of, args, names, fields, stamp)
  if fields == 3 and not stamp then
    local first, second, third = args[names], args[names + 1], args[names + 2]
    return function(call, offset, at)
      return call(
        "XADD", stream, id_of(offset), first, args[at], second, args[at + 1], third, args[at + 2]
      )
    end
  end
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

-- A function (n) that gives value `n`, counted from 0, of a column whose values have these lengths.
-- It has to be asked for each in turn; for the first also twice.
local function in_turn(length, lengths, values)
  local next = 1
  return function(n)
    local here = length
    if here < 0 then
      local a, b, c, d = byte(lengths, 4 * n + 1, 4 * n + 4)
      here = a + 256 * (b + 256 * (c + 256 * d))
    end
    local first = n > 0 and next or 1
    next = first + here
    return sub(values, first, next - 1)
  end
end

-- `columns` of two fields, or three, of which the values of each are equally long. A call made of a
-- table, or of values that functions give, takes a third as long again.
local function fixed(stream, id_of, args, at)
  local name1, long1, values1 = args[at + 1], tonumber(args[at + 2]), args[at + 4]
  local name2, long2, values2 = args[at + 5], tonumber(args[at + 6]), args[at + 8]
  if tonumber(args[at]) == 2 then
    return function(call, offset, n)
      local from1, from2 = n * long1, n * long2
      return call(
        "XADD", stream, id_of(offset), name1, sub(values1, from1 + 1, from1 + long1), name2,
        sub(values2, from2 + 1, from2 + long2)
      )
    end
  end
  local name3, long3, values3 = args[at + 9], tonumber(args[at + 10]), args[at + 12]
  local same = long3 > 0 and sub(values3, 1, long3)
  if same and values3 ~= string.rep(same, #values3 / long3) then
    same = nil
  end
  return function(call, offset, n)
    local from1, from2, from3 = n * long1, n * long2, n * long3
    return call(
      "XADD", stream, id_of(offset), name1, sub(values1, from1 + 1, from1 + long1), name2,
      sub(values2, from2 + 1, from2 + long2), name3,
      same or sub(values3, from3 + 1, from3 + long3)
    )
  end
end

--- A function (call, offset, n) that adds entry `n`, counted from 0, of columns: from `args[at]` on
--- stand the number of fields and, for each, its name, how long every value is or -1, the lengths
--- where they differ, four bytes each and the lowest first, and all values one behind another.
function M.columns(stream, id_of, args, at, stamp)
  local fields, names, values, equal = tonumber(args[at]), {}, {}, not stamp
  for i = 1, fields do
    local from = at + 4 * i - 3
    local length = tonumber(args[from + 1])
    names[i], values[i] = args[from], in_turn(length, args[from + 2], args[from + 3])
    equal = equal and length >= 0
  end
  if equal and (fields == 2 or fields == 3) then
    return fixed(stream, id_of, args, at)
  end
  local row = { "XADD", stream, "" }
  if stamp then
    row[4], row[5] = "append.time", stamp
  end
  local before = #row
  for i = 1, fields do
    row[before + 2 * i - 1], row[before + 2 * i] = names[i], ""
  end
  local width = #row
  return function(call, offset, n)
    row[3] = id_of(offset)
    for i = 1, fields do
      row[before + 2 * i] = values[i](n)
    end
    return call(unpack(row, 1, width))
  end
end

return M
