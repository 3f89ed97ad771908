--- Layout `record`: one entry per record, whose id is that of the record's offset.
local entry_limits = require("lib.entry_limits")

local M = {}

-- Return the index of the last value of `count` records; args[at] is the first record's number of
-- fields. Return nil if a number is not valid for an entry.
local function end_of_records(args, at, last, count, least)
  local ends = at - 1
  for _ = 1, count do
    local fields = ends < last and tonumber(args[ends + 1])
    if not fields or fields < least or fields % 2 ~= 0 then
      return nil
    end
    if fields > entry_limits.MAX then
      entry_limits.check(fields)
    end
    ends = ends + 1 + fields
  end
  return ends
end

--- Read a batch for lib.append: args[at + 7..last] are, for each record, the number of its fields
--- and values, then those; or one of the two shorter forms of lib.columnar_entries.
function M.read(log, args, at, last, count, size)
  local from, stamp = at + 7, log.stamp and log.now_ms
  local fields = tonumber(args[from])
  if not fields or fields < 0 then
    local columnar_entries = require("lib.columnar_entries")
    local add, add_rest, ends
    if fields then
      add, add_rest, ends = columnar_entries.rows(log, args, from + 1, -fields, stamp, count)
    else
      add, add_rest, ends = columnar_entries.columns(log, args, from + 1, stamp, count)
    end
    if ends ~= last then
      return nil
    end
    return count, count, size, add, add_rest
  end
  if end_of_records(args, from, last, count, stamp and 0 or 2) ~= last then
    return nil
  end
  local stream = log.stream
  local function add_record(call, offset, first, ends)
    local id = log.id_of(offset)
    if stamp then
      return call("XADD", stream, id, "append.time", stamp, unpack(args, first, ends))
    end
    return call("XADD", stream, id, unpack(args, first, ends))
  end
  local function add(call, base)
    return add_record(call, base, from + 1, from + fields)
  end
  local function add_rest(base)
    local call, ends = redis.call, from + fields
    for n = 1, count - 1 do
      local first = ends + 2
      ends = ends + 1 + tonumber(args[ends + 1])
      add_record(call, base + n, first, ends)
    end
  end
  return count, count, size, add, add_rest
end

return M
