--- The scheduled records of one partition: they wait outside the log until they are due.
---
--- scheduled          zset  number -> due time, ms; numbers have 16 digits: records of one due time
---                          keep the order of their arrival
--- scheduled_records  hash  number -> row
--- scheduled_ids      hash  schedule id -> number
---
--- A row is "count:size:max_timestamp:length:" and the schedule id, of `length` bytes, then the
--- payload: what lib.append needs for these records. In layout `record` the payload has for each
--- record the number of its fields and values, then those, as lib.pack writes them. In layout
--- `batch` it is a record batch.
---
--- The log's state has `scheduled_number`, the next number, and `scheduled_count` and
--- `scheduled_bytes`, the records that wait and the bytes of their rows.
local num = require("lib.num")

local M = {}

--- The fields of the log hash that M.open reads.
local FIELDS = { "scheduled_number", "scheduled_count", "scheduled_bytes" }

--- Return the row of records with these arguments of lib.append.
function M.row(count, size, max_timestamp, id, payload)
  return count .. ":" .. size .. ":" .. max_timestamp .. ":" .. num.text(#id) .. ":" .. id
    .. payload
end

--- Parse a row: return count, size, max_timestamp as text, schedule id, and the payload's index.
function M.parse(row)
  local count, size, max_timestamp, length, at =
    string.match(row, "^(%d+):(%d+):(%-?%d+):(%d+):()")
  at, length = tonumber(at), tonumber(length)
  return tonumber(count), tonumber(size), max_timestamp, string.sub(row, at, at + length - 1),
    at + length
end

--- Return the schedule of keys[k..k + 2], whose totals are in the hash `log`. Raise an error if a
--- key has another type.
function M.open(log, keys, k)
  redis.call("ZCARD", keys[k])
  redis.call("HLEN", keys[k + 1])
  redis.call("HLEN", keys[k + 2])
  local found = redis.call("HMGET", log, unpack(FIELDS))
  return {
    log = log, due = keys[k], rows = keys[k + 1], ids = keys[k + 2],
    number = tonumber(found[1] or "0"), count = tonumber(found[2] or "0"),
    bytes = tonumber(found[3] or "0"),
  }
end

--- Write the totals.
function M.close(schedule)
  redis.call(
    "HSET", schedule.log, "scheduled_number", num.text(schedule.number), "scheduled_count",
    num.text(schedule.count), "scheduled_bytes", num.text(schedule.bytes)
  )
end

--- Return the due time of the first record, in ms; nil if none waits.
function M.first_due(schedule)
  local found = redis.call("ZRANGE", schedule.due, 0, 0, "WITHSCORES")
  return tonumber(found[2])
end

--- Subtract a row from the totals.
function M.subtract(schedule, row)
  schedule.count = schedule.count - tonumber(string.match(row, "^%d+"))
  schedule.bytes = schedule.bytes - #row
end

--- Remove the row of that number; return whether there was one. Its schedule id stays.
function M.remove(schedule, number)
  local row = redis.call("HGET", schedule.rows, number)
  if not row then
    return false
  end
  redis.call("ZREM", schedule.due, number)
  redis.call("HDEL", schedule.rows, number)
  M.subtract(schedule, row)
  return true
end

return M
