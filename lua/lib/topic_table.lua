--- Keep the newest value of each key of a log in a hash, at its appends.
---
--- table        hash  record key -> value of its newest record; no field if that has no value
--- table_newer  zset  record key -> offset of its newest record, of records that an append added to
---                    the table while it was not level; with `table_offsets` of all keys that
---                    have a value
---
--- The log's state has `table`: all records below that offset are in the table, but for those
--- without a key or of aborted transactions. If it is the log's end, the table is level, and an
--- append adds its records and keeps it so. Records of transactions, of other programs, and from
--- before the table was enabled are added by log.fill_table, in the order of offsets. Appends
--- meanwhile note in `table_newer` what these must not replace.
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local num = require("lib.num")

local M = {}
--- The fields of values that are compressed at rest, as korvet.wire.record_entries has them.
M.PACKED = {
  ["value.gzip"] = true, ["value.snappy"] = true, ["value.lz4"] = true, ["value.zstd"] = true,
}
local Latest = {}
Latest.__index = Latest

local EXPECTED = "header.korvet-expected-offset"

-- Write the keys and values of records that each name their fields to rows[1], rows[2], and so on.
-- Return whether each record has both, whether all values are readable, and by the number of the
-- record the offset at which its key's newest record is expected; nil if none is.
local function read_fields(args, at, count, rows)
  local is_whole, is_plain, expected = true, true, nil
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
      elseif name == EXPECTED then
        expected = expected or {}
        expected[n] = args[i + 1]
      end
    end
    rows[2 * n - 1], rows[2 * n] = key, value
    is_whole = is_whole and key and value
    at = ends + 1
  end
  return is_whole, is_plain, expected
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
  log.rows = nil
  if (tonumber(args[from]) or -1) >= 0 then
    local is_plain
    latest.is_whole, is_plain, latest.expected = read_fields(args, from, count, rows)
    latest.is_later = is_transactional or not is_plain
    latest.is_transactional = is_transactional
  elseif is_transactional then
    latest.is_later = true
  elseif read_column(args, from, "key", count, rows, 1) then
    latest.is_whole = read_column(args, from, "value", count, rows, 2)
    log.rows = latest.is_whole and rows
  else
    latest.count = 0
  end
  return latest
end

-- Return whether the table has the records of all ended transactions and other programs.
local function is_complete(log)
  local offset_map = require("lib.offset_map")
  local map = log.map or offset_map.open(log.mode, log.bits)
  local stable = tonumber(redis.call("HGET", log.hash, "stable") or "-1")
  local limit = stable >= 0 and math.min(stable, log.next) or log.next
  return log.table >= limit
    and not redis.call("XRANGE", log.stream, map:from(log.next), "+", "COUNT", 1)[1]
end

--- Return the error that refuses the batch if the newest record of a key is not at the expected
--- offset, and that offset, -1 if the key has no value; nil if it is not refused.
function Latest:refusal()
  local log, expected = self.log, self.expected
  if not expected or log.is_due then
    return nil
  end
  local keys, wanted = {}, {}
  for n = 1, self.count do
    if expected[n] then
      keys[#keys + 1], wanted[#wanted + 1] = self.rows[2 * n - 1], tonumber(expected[n])
      if not self.rows[2 * n - 1] or not string.find(expected[n], "^%-?%d+$") then
        return codes.INVALID_RECORD, -1
      end
    end
  end
  if not log.has_offsets or self.is_transactional then
    return codes.INVALID_RECORD, -1
  end
  if not is_complete(log) then
    return codes.KAFKA_STORAGE_ERROR, -1
  end
  for i, text in ipairs(chunks.list("ZMSCORE", log.newer, keys)) do
    local offset = tonumber(text or "-1")
    if offset ~= wanted[i] and (offset >= 0 or wanted[i] >= 0) then
      return codes.INVALID_UPDATE_VERSION, offset
    end
  end
  return nil
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
    if not log.has_offsets then
      return
    end
  end
  local last, newer, removed = {}, {}, {}
  for n = 1, count do
    if rows[2 * n - 1] then
      last[rows[2 * n - 1]] = n
    end
  end
  for key, n in pairs(last) do
    if is_level and not rows[2 * n] then
      removed[#removed + 1] = key
    else
      newer[#newer + 1] = num.text(base + n - 1)
      newer[#newer + 1] = key
    end
  end
  chunks.call("ZADD", log.newer, newer)
  chunks.call("ZREM", log.newer, removed)
end

return M
