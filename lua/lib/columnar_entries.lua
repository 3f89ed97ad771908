--- The entries of an append whose records all have the same fields: the names are sent once.
---
--- Both forms give two functions: (call, offset) adds the first entry, and may be asked again if Redis
--- refused it; (id, from, to) adds the entries `from` to `to`, counted from 0, after those before.
local entry_id = require("lib.entry_id")
local num = require("lib.num")

local M = {}

local byte, sub = string.byte, string.sub

--- Entries 1 to `count` - 1 stand behind the first, which has offset `base`: `put` adds them. Redis 7
--- and newer count on by themselves behind the first half of an id, which takes them a sixth less
--- than to read a whole one.
function M.follow(log, base, count, put)
  if not redis.REDIS_VERSION_NUM then
    for n = 1, count - 1 do
      put(log.id_of(base + n), n, n)
    end
    return
  end
  if log.mode ~= "time" then
    put(entry_id.DENSE .. "-*", 1, count - 1)
    return
  end
  local unit, n = 2 ^ log.bits, 1
  while n < count do
    local ms = math.floor((base + n) / unit)
    local to = math.min((ms + 1) * unit - base, count) - 1
    put(num.text(ms) .. "-*", n, to)
    n = to + 1
  end
end

-- The command that adds an entry, its id still to come, and where its fields begin.
local function command(log, stamp)
  if stamp then
    return { "XADD", log.stream, "", "append.time", stamp }, 6
  end
  return { "XADD", log.stream, "" }, 4
end

--- Records whose values stand one behind another from `args[names + fields]` on. The names stand
--- from `args[names]` on, `fields` of them; `stamp` is the append time or false.
function M.rows(log, args, names, fields, stamp)
  local row, first = command(log, stamp)
  for i = 1, fields do
    row[first + 2 * i - 2], row[first + 2 * i - 1] = args[names + i - 1], args[names + fields + i - 1]
  end
  local width = #row
  local function add(call, offset)
    row[3] = log.id_of(offset)
    return call(unpack(row, 1, width))
  end
  if width == 9 and not stamp then
    local stream, name1, name2, name3 = log.stream, row[4], row[6], row[8]
    return add, function(id, from, to)
      local call = redis.call
      for n = from, to do
        local at = names + 3 * (n + 1)
        call("XADD", stream, id, name1, args[at], name2, args[at + 1], name3, args[at + 2])
      end
    end
  end
  return add, function(id, from, to)
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
end

-- What string.byte takes apart at a time.
local AT_ONCE = 2000

-- The lengths of a column's values, `wide` bytes each. Most are below 256; to take one byte
-- costs a fifth of what four do.
local function unpacked(lengths, wide)
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

-- Whether every value of a column is the first one: short ones, such as times, may well be.
local function is_constant(first, long, values)
  return long > 0 and long < 32 and sub(values, -long) == first
    and values == string.rep(first, #values / long)
end

-- What M.columns gives second where a key and a value vary and a time does not, as in most batches: a
-- call made of a table takes a seventh longer. The row has its first values; column `i` has values all
-- longs[i] long, or each as lengths[i] says, and those up to ends[i] are done.
local function keyed(row, longs, lengths, values, ends)
  local stream, name1, name2, name3, constant = row[2], row[4], row[6], row[8], row[9]
  local long1, lengths1, values1, done1 = longs[1], lengths[1], values[1], ends[1]
  local long2, lengths2, values2, done2 = longs[2], lengths[2], values[2], ends[2]
  return function(id, from, to)
    local call = redis.call
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

--- Columns: from `args[at]` on stand the number of fields and, for each, its name, how long every
--- value is or -1, the lengths where they differ, one byte each or four with the lowest first, and all
--- values one behind another. Gives third where they end, nil where these are not of `records` values.
function M.columns(log, args, at, stamp, records)
  local row, first = command(log, stamp)
  local slots, longs, lengths, values, ends, count = {}, {}, {}, {}, {}, 0
  local fields = tonumber(args[at])
  if not fields then
    return nil, nil, nil
  end
  local whole = (stamp or fields > 0) and at + 4 * fields or nil
  for i = 1, fields do
    local from = at + 4 * i - 3
    local long, all = tonumber(args[from + 1]), args[from + 3]
    local wide = #(args[from + 2] or "") / records
    if not all or #all ~= long * records and (long >= 0 or wide ~= 1 and wide ~= 4) then
      return nil, nil, nil
    end
    local each = long < 0 and unpacked(args[from + 2], wide)
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
  if width == 9 and slots[1] == 5 and slots[2] == 7 and not slots[3] then
    return add, keyed(row, longs, lengths, values, ends), whole
  end
  return add, function(id, from, to)
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
  end, whole
end

return M
