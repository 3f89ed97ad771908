--- The scheduled records of one partition: they wait outside the log until they are due.
---
--- scheduled          zset  number -> due time, ms, of a record with a time; FAR more, by the
---                          partition's own clock, of one with a delay. Numbers have 16 digits:
---                          records of one due time keep the order of their arrival
--- scheduled_records  hash  number -> row
--- scheduled_ids      hash  schedule id -> number
---
--- A row is "count:size:max_timestamp:length:" and the schedule id, of `length` bytes, then the
--- payload: what lib.append needs for these records. In layout `record` the payload has for each
--- record the number of its fields and values, then those, as lib.pack writes them. In layout
--- `batch` it is a record batch.
---
--- The log's state has `scheduled_number`, the next number, `scheduled_count` and
--- `scheduled_bytes`, the records that wait and the bytes of their rows, and the partition's clock:
--- `scheduled_mark`, Redis's time when the clock was last read, and `scheduled_ahead`, the ms by
--- which it is ahead of Redis's. If Redis's time is before the mark, that was set back: the
--- difference is added, so that each delay ends after its own duration.
local clock = require("lib.clock")
local num = require("lib.num")

local M = {}

--- The fields of the log hash that M.totals reads.
local FIELDS = {
  "scheduled_number", "scheduled_count", "scheduled_bytes", "scheduled_ahead", "scheduled_mark",
}

-- Scores of delays are above it, those of times below.
local FAR = 2 ^ 50

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
  local schedule = M.totals(log, keys[k])
  schedule.rows, schedule.ids = keys[k + 1], keys[k + 2]
  return schedule
end

--- Return the totals in the hash `log` and the partition's clock, of the zset `due`.
function M.totals(log, due)
  local found = redis.call("HMGET", log, unpack(FIELDS))
  local schedule = {
    log = log, due = due, number = tonumber(found[1] or "0"), count = tonumber(found[2] or "0"),
    bytes = tonumber(found[3] or "0"), ahead = 0, now_ms = clock.now_ms(),
  }
  if schedule.count > 0 then
    schedule.ahead = tonumber(found[4]) + math.max(0, tonumber(found[5]) - schedule.now_ms)
  end
  return schedule
end

--- Write the totals and the clock.
function M.close(schedule)
  redis.call(
    "HSET", schedule.log, "scheduled_number", num.text(schedule.number), "scheduled_count",
    num.text(schedule.count), "scheduled_bytes", num.text(schedule.bytes), "scheduled_ahead",
    num.text(schedule.ahead), "scheduled_mark", num.text(schedule.now_ms)
  )
end

--- Return the score of a record that is due at that time, or after that delay.
function M.score(schedule, kind, ms)
  if kind == "in" then
    return FAR + schedule.ahead + schedule.now_ms + ms
  end
  return math.min(ms, FAR - 1)
end

-- Add { number, due time by Redis's clock } to a list, of each pair in a reply WITHSCORES.
local function add_rows(rows, flat, is_delayed, sooner_ms)
  for i = 1, #flat, 2 do
    rows[#rows + 1] = { flat[i], tonumber(flat[i + 1]) - sooner_ms, is_delayed }
  end
end

-- Return whether a row is before another: by due time, then by arrival.
local function is_before(one, other)
  return one[2] < other[2] or one[2] == other[2] and one[1] < other[1]
end

--- Return rows as a list of { number, due time, is_delayed }, in order, at most `most`: those after
--- the first `timed` rows with a time and the first `delayed` ones with a delay.
function M.page(schedule, timed, delayed, most)
  local due, rows = schedule.due, {}
  local border = redis.call("ZCOUNT", due, "-inf", num.text(FAR - 1))
  local last = math.min(timed + most, border) - 1
  if timed <= last then
    add_rows(rows, redis.call("ZRANGE", due, timed, last, "WITHSCORES"), false, 0)
  end
  local from = border + delayed
  local found = most > 0 and redis.call("ZRANGE", due, from, from + most - 1, "WITHSCORES") or {}
  add_rows(rows, found, true, FAR + schedule.ahead)
  table.sort(rows, is_before)
  for i = #rows, most + 1, -1 do
    rows[i] = nil
  end
  return rows
end

--- Return the due time of the first record, in ms; nil if none waits.
function M.first_due(schedule)
  local row = M.page(schedule, 0, 0, 1)[1]
  return row and row[2]
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
