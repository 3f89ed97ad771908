--- schedule.list  version 1  reads
--- List the scheduled records of a partition, ordered by due time, then by arrival.
---
--- KEYS     log                hash    the partition's state
---          scheduled          zset    number of a scheduled record -> due time
---          scheduled_records  hash    number -> row
--- ARGV     topic_id           text    the topic's id as the caller knows it, 32 hex digits
---          timed              int=0   rows with a time to leave out
---          delayed            int=0   rows with a delay to leave out
---          most               int     max rows to return
---          max_bytes          int=4194304  max bytes of rows to read, but always one row
--- RETURNS  error              int     a lib.codes value
---          records            int     records that wait, of all rows
---          size               int     bytes of all rows
---          overdue_ms         int     age of the first due time; 0 if none has passed
---          delayed            int     rows returned that have a delay
---          rows               values  for each: number, due time in ms, schedule id, records,
---                                     bytes
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(rows), at most 8 calls + 2 per row
local codes = require("lib.codes")
local num = require("lib.num")
local schedules = require("lib.schedule")

local log, scheduled, records = KEYS[1], KEYS[2], KEYS[3]
local timed, delayed, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local max_bytes = tonumber(ARGV[5])

local known = redis.call("HGET", log, "topic_id")
if known ~= ARGV[1] then
  return { known and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, 0, 0, 0, {} }
end
local schedule = schedules.totals(log, scheduled)
local first = schedules.first_due(schedule)
local overdue_ms = first and math.max(0, schedule.now_ms - first) or 0
local rows, delays, size = {}, 0, 0
for _, each in ipairs(schedules.page(schedule, timed, delayed, most)) do
  size = size + redis.call("HSTRLEN", records, each[1])
  if size > max_bytes and #rows > 0 then
    break
  end
  local row = redis.call("HGET", records, each[1])
  if row then
    local count, _, _, id = schedules.parse(row)
    local n = #rows
    delays = delays + (each[3] and 1 or 0)
    rows[n + 1], rows[n + 2] = tonumber(each[1]), num.text(each[2])
    rows[n + 3], rows[n + 4], rows[n + 5] = id, count, #row
  end
end
return { codes.NONE, schedule.count, schedule.bytes, overdue_ms, delays, rows }
