--- schedule.list  version 1  reads
--- List the scheduled records of a partition, ordered by due time, then by arrival.
---
--- KEYS     log                hash   the partition's state
---          scheduled          zset   number of a scheduled record -> due time
---          scheduled_records  hash   number -> row
--- ARGV     topic_id           bytes  the topic's id as the caller knows it, 32 hex digits
---          skip               int    rows to leave out
---          most               int    max rows to return
--- RETURNS  error              int    a lib.codes value
---          records            int    records that wait, of all rows
---          size               int    bytes of all rows
---          overdue_ms         int    age of the first due time; 0 if none has passed
---          rows               list   for each: number, due time in ms, schedule id, records, bytes
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(rows), at most 4 calls + 1 per row
local clock = require("lib.clock")
local codes = require("lib.codes")
local num = require("lib.num")
local schedules = require("lib.schedule")

local log, scheduled, records = KEYS[1], KEYS[2], KEYS[3]
local skip, most = tonumber(ARGV[2]), tonumber(ARGV[3])

local state = redis.call("HMGET", log, "topic_id", "scheduled_count", "scheduled_bytes")
if state[1] ~= ARGV[1] then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, 0, 0, {} }
end
local first = redis.call("ZRANGE", scheduled, 0, 0, "WITHSCORES")
local overdue_ms = math.max(0, clock.now_ms() - (tonumber(first[2]) or math.huge))
local found, rows = {}, {}
if most > 0 then
  found = redis.call("ZRANGE", scheduled, skip, skip + most - 1, "WITHSCORES")
end
for i = 1, #found, 2 do
  local row = redis.call("HGET", records, found[i])
  if row then
    local count, _, _, id = schedules.parse(row)
    local n = #rows
    rows[n + 1], rows[n + 2] = tonumber(found[i]), num.text(tonumber(found[i + 1]))
    rows[n + 3], rows[n + 4], rows[n + 5] = id, count, #row
  end
end
return { codes.NONE, tonumber(state[2] or "0"), tonumber(state[3] or "0"), overdue_ms, rows }
