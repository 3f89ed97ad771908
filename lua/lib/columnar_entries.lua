--- Records of layout `record` that all have the same fields: their names are sent once.
---
--- `rows` and `columns` return lib.append's `add` and `add_rest`, and the index of the last
--- argument they use.
local entry_id = require("lib.entry_id")
local entry_limits = require("lib.entry_limits")
local num = require("lib.num")

local M = {}

local byte, sub = string.byte, string.sub

-- Add the records 1 to `count` - 1, counted from 0, with `add_range(id, from, to)`. Redis 7 and
-- newer complete an id `<ms>-*` themselves, which takes a sixth less time than parsing a whole id.
local function add_after(log, base, count, add_range)
  if not redis.REDIS_VERSION_NUM then
    for n = 1, count - 1 do
      add_range(log.id_of(base + n), n, n)
    end
    return
  end
  if log.mode ~= "time" or log.fixed_ms then
    add_range((log.fixed_ms or entry_id.DENSE) .. "-*", 1, count - 1)
    return
  end
  local unit, n = 2 ^ log.bits, 1
  while n < count do
    local ms = math.floor((base + n) / unit)
    local to = math.min((ms + 1) * unit - base, count) - 1
    add_range(num.text(ms) .. "-*", n, to)
    n = to + 1
  end
end

-- An XADD command as a table, its id not set, and the index of its first field.
local function command(log, stamp)
  if stamp then
    return { "XADD", log.stream, "", "append.time", stamp }, 6
  end
  return { "XADD", log.stream, "" }, 4
end

--- args[names..] are `fields` names, then the values of `count` records, record by record; `stamp`
--- is the append time or false.
function M.rows(log, args, names, fields, stamp, count)
  entry_limits.check(2 * fields)
  local row, first = command(log, stamp)
  for i = 1, fields do
    local at = names + i - 1
    row[first + 2 * i - 2], row[first + 2 * i - 1] = args[at], args[at + fields]
  end
  local width = #row
  local function add(call, offset)
    row[3] = log.id_of(offset)
    return call(unpack(row, 1, width))
  end
  local function add_range(id, from, to)
    local call = redis.call
    row[3] = id
    for n = from, to do
      local at = names + fields * (n + 1) - 1
      for i = 1, fields do
        row[first + 2 * i - 1] = args[at + i]
      end
      call(unpack(row, 1, width))
    end
  end
  if width == 9 and not stamp then
    local stream, name1, name2, name3 = log.stream, row[4], row[6], row[8]
    add_range = function(id, from, to)
      local call = redis.call
      for n = from, to do
        local at = names + 3 * (n + 1)
        call("XADD", stream, id, name1, args[at], name2, args[at + 1], name3, args[at + 2])
      end
    end
  end
  local function add_rest(base)
    add_after(log, base, count, add_range)
  end
  return add, add_rest, names - 1 + fields * (count + 1)
end

-- Max bytes per string.byte: each is a value on Lua's stack.
local AT_ONCE = 2000

-- The lengths of a column's values, each `wide` bytes: 1, which costs a fifth, or 4 with the lowest
-- first.
local function decoded_lengths(lengths, wide)
  if wide == 1 and #lengths <= AT_ONCE then
    return { byte(lengths, 1, -1) }
  end
  local found, n = {}, 0
  for from = 1, #lengths, AT_ONCE do
    local part = { byte(lengths, from, from + AT_ONCE - 1) }
    for i = 1, #part, wide do
      n = n + 1
      found[n] = wide == 1 and part[i]
        or part[i] + 256 * (part[i + 1] + 256 * (part[i + 2] + 256 * part[i + 3]))
    end
  end
  return found
end

-- Return whether a column's values are equal. Only short ones, such as timestamps, are compared.
local function is_constant(first, long, values)
  return long > 0 and long < 32 and sub(values, -long) == first
    and values == string.rep(first, #values / long)
end

-- `add_range` of M.columns for three fields of which the first two vary, as in most batches (key,
-- value, timestamp): a command passed as a table takes a seventh longer. `row` has the first
-- values. Column i has values of longs[i] bytes each, or of lengths[i]; those up to ends[i] are
-- added. `log.rows` has the keys and values if M.values has read both.
local function two_of_three(log, row, longs, lengths, values, ends)
  local stream, name1, name2, name3, constant = row[2], row[4], row[6], row[8], row[9]
  local long1, lengths1, values1, done1 = longs[1], lengths[1], values[1], ends[1]
  local long2, lengths2, values2, done2 = longs[2], lengths[2], values[2], ends[2]
  return function(id, from, to)
    local call, rows = redis.call, log.rows
    if rows and name1 == "key" and name2 == "value" then
      for n = 2 * from + 1, 2 * to + 1, 2 do
        call("XADD", stream, id, name1, rows[n], name2, rows[n + 1], name3, constant)
      end
      return
    end
    for n = from, to do
      local from1, from2 = done1 + 1, done2 + 1
      done1 = done1 + (lengths1 and lengths1[n + 1] or long1)
      done2 = done2 + (lengths2 and lengths2[n + 1] or long2)
      call(
        "XADD", stream, id, name1, sub(values1, from1, done1), name2, sub(values2, from2, done2),
        name3, constant
      )
    end
  end
end

--- args[at..] are the number of fields and, for each, its name, the length of every value or -1,
--- the lengths if they differ, and all values concatenated. Returns nil unless these are `records`
--- values.
function M.columns(log, args, at, stamp, records)
  entry_limits.check(2 * (tonumber(args[at]) or 0))
  local row, first = command(log, stamp)
  local slots, longs, lengths, values, ends, count = {}, {}, {}, {}, {}, 0
  local fields = tonumber(args[at])
  if not fields or not stamp and fields < 1 then
    return nil
  end
  for i = 1, fields do
    local from = at + 4 * i - 3
    local long, all = tonumber(args[from + 1]), args[from + 3]
    local wide = #(args[from + 2] or "") / records
    if not all or #all ~= long * records and (long >= 0 or wide ~= 1 and wide ~= 4) then
      return nil
    end
    local each = long < 0 and decoded_lengths(args[from + 2], wide)
    local here = each and each[1] or long
    local value = sub(all, 1, here)
    row[first + 2 * i - 2], row[first + 2 * i - 1] = args[from], value
    if not is_constant(value, long, all) then
      count = count + 1
      slots[count], longs[count], lengths[count] = first + 2 * i - 1, long, each
      values[count], ends[count] = all, here
    end
  end
  local width = #row
  local function add(call, offset)
    row[3] = log.id_of(offset)
    return call(unpack(row, 1, width))
  end
  local function add_range(id, from, to)
    local call = redis.call
    row[3] = id
    for n = from, to do
      for i = 1, count do
        local done = ends[i]
        local long = lengths[i] and lengths[i][n + 1] or longs[i]
        row[slots[i]] = sub(values[i], done + 1, done + long)
        ends[i] = done + long
      end
      call(unpack(row, 1, width))
    end
  end
  if width == 9 and slots[1] == 5 and slots[2] == 7 and not slots[3] then
    add_range = two_of_three(log, row, longs, lengths, values, ends)
  end
  local function add_rest(base)
    add_after(log, base, records, add_range)
  end
  return add, add_rest, at + 4 * fields
end

--- Write the `records` values of a column to rows[first], rows[first + 2], and so on. Return false
--- if no column has the name. args[at..] are those of M.columns.
function M.values(args, at, name, records, rows, first)
  for i = 1, tonumber(args[at]) do
    local from = at + 4 * i - 3
    if args[from] == name then
      local long, all, done = tonumber(args[from + 1]), args[from + 3], 0
      local lengths = long < 0 and decoded_lengths(args[from + 2], #args[from + 2] / records)
      for n = 1, records do
        local size = lengths and lengths[n] or long
        rows[first + 2 * n - 2] = sub(all, done + 1, done + size)
        done = done + size
      end
      return true
    end
  end
  return false
end

return M
