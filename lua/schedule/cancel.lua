--- schedule.cancel  version 1  writes
--- Remove a scheduled record before it is due, by its schedule id or by its number.
---
--- KEYS     log                hash    the partition's state
---          scheduled          zset    number of a scheduled record -> due time
---          scheduled_records  hash    number -> row
---          scheduled_ids      hash    schedule id -> number
--- ARGV     topic_id           text    the topic's id as the caller knows it, 32 hex digits
---          id                 bytes=  the schedule id; empty: by number
---          number             int=-1  the number that schedule.list returns; -1: by id
--- RETURNS  error              int     a lib.codes value
---          cancelled          int     records removed; 0 if there is no such record
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: records are removed
--- COST     O(log scheduled), at most 13 calls
local codes = require("lib.codes")
local num = require("lib.num")
local schedules = require("lib.schedule")

local log, ids = KEYS[1], KEYS[4]
local topic_id, id, number = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- Check.
local known = redis.call("HGET", log, "topic_id")
if known ~= topic_id then
  return { known and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0 }
end
local schedule = schedules.open(log, KEYS, 2)
local name = id ~= "" and redis.call("HGET", ids, id) or number >= 0 and num.padded(number)
local row = name and redis.call("HGET", schedule.rows, name)
if not row then
  return { codes.NONE, 0 }
end
local count, _, _, own = schedules.parse(row)

-- Write.
schedules.remove(schedule, name)
if own ~= "" then
  redis.call("HDEL", ids, own)
end
schedules.close(schedule)
return { codes.NONE, count }
