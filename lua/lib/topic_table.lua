--- Keep the newest value of each key of a log in a hash, at its appends.
---
--- table        hash  record key -> value of its newest record; no field if that has no value
--- table_newer  zset  record key -> offset of its newest record, of records that an append added to
---                    the table while it was not level
---
--- The log's state has `table`: all records below that offset are in the table, but for those
--- without a key or of aborted transactions. If it is the log's end, the table is level, and an
--- append adds its records and keeps it so. Records of transactions, of other programs, and from
--- before the table was enabled are added by log.fill_table, in the order of offsets. Appends
--- meanwhile note in `table_newer` what these must not replace.
local chunks = require("lib.chunks")
local num = require("lib.num")

local M = {}
--- The fields of values that are compressed at rest, as korvet.wire.record_entries has them.
M.PACKED = {
  ["value.gzip"] = true, ["value.snappy"] = true, ["value.lz4"] = true, ["value.zstd"] = true,
}
local Latest = {}
Latest.__index = Latest

-- Write the keys and values of records that each name their fields to rows[1], rows[2], and so on.
-- Return whether each record has both, and whether all values are readable.
local function read_fields(args, at, count, rows)
  local is_whole, is_plain = true, true
  for n = 1, count do
    local ends, key, value = at + tonumber(args[at]), false, false
    for i = at + 1, ends, 2 do
      local name = args[i]
      if name == "key" then
        key = args[i + 1]
      elseif name == "value" then
        value = args[i + 1]
      elseif M.PACKED[name] then
        is_plain = false
      end
    end
    rows[2 * n - 1], rows[2 * n] = key, value
    is_whole = is_whole and key and value
    at = ends + 1
  end
  return is_whole, is_plain
end

-- The same of a batch whose records have the same fields: a value or false in rows[first + 2 * n]
-- for record n, from 0.
local function read_column(args, at, name, count, rows, first)
  local fields, values = tonumber(args[at]), nil
  if fields then
    for i = 1, -fields do
      values = args[at + i] == name and at + i or values
    end
  else
    local columnar_entries = require("lib.columnar_entries")
    if columnar_entries.values(args, at + 1, name, count, rows, first) then
      return true
    end
  end
  for n = 0, count - 1 do
    rows[first + 2 * n] = values and args[values - fields * (n + 1)] or false
  end
  return values ~= nil
end

--- Read the batch args[at..] of `count` records, which lib.record_entries has checked. Raise an
--- error if a key of the table has another type.
function M.read(log, args, at, count, is_transactional)
  redis.call("HLEN", log.values)
  redis.call("ZCARD", log.newer)
  local latest = setmetatable({ log = log, count = count, rows = {} }, Latest)
  local from, rows = at + 7, latest.rows
  if is_transactional then
    latest.is_later = true
  elseif (tonumber(args[from]) or -1) >= 0 then
    local is_plain
    latest.is_whole, is_plain = read_fields(args, from, count, rows)
    latest.is_later = not is_plain
  elseif read_column(args, from, "key", count, rows, 1) then
    latest.is_whole = read_column(args, from, "value", count, rows, 2)
  else
    latest.count = 0
  end
  return latest
end

--- Set the newest values and remove the keys whose newest record has none. `newest` has a value or
--- false by key.
function M.write(values, newest)
  local sets, removed = {}, {}
  for key, value in pairs(newest) do
    if value then
      sets[#sets + 1] = key
      sets[#sets + 1] = value
    else
      removed[#removed + 1] = key
    end
  end
  chunks.call("HSET", values, sets)
  chunks.call("HDEL", values, removed)
end

--- Add the records, appended from offset `base` on, to the table; `before` is the log end offset
--- before them. Those of a transaction are left to log.fill_table, and compressed ones.
function Latest:put(before, base, offsets)
  if self.is_later then
    return
  end
  local log, rows, count = self.log, self.rows, self.count
  local is_level = log.table == before
  if self.is_whole and count > 0 then
    chunks.call("HSET", log.values, rows)
  elseif count > 0 then
    local newest = {}
    for n = 1, count do
      if rows[2 * n - 1] then
        newest[rows[2 * n - 1]] = rows[2 * n]
      end
    end
    M.write(log.values, newest)
  end
  if is_level then
    log.table, log.is_table_moved = base + offsets, true
    return
  end
  local newer = {}
  for n = 1, count do
    if rows[2 * n - 1] then
      newer[#newer + 1] = num.text(base + n - 1)
      newer[#newer + 1] = rows[2 * n - 1]
    end
  end
  chunks.call("ZADD", log.newer, newer)
end

return M
