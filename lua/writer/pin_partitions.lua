--- writer.pin_partitions  version 1  writes
--- Pin the number of partitions and the first partition for an epoch: all attempts at the epoch
--- distribute a topic's rows as the first attempt did.
---
--- KEYS     writer      hash  the tasks of one Spark query or job, and what it has committed
--- ARGV     topic_id    text  32 hex digits
---          epoch       int   the epoch, 0 for a batch job
---          partitions  int   current partitions of the topic
---          turn        int   the partition that gets the first rows, from 0
--- RETURNS  error       int   a lib.codes value
---          partitions  int   partitions for this epoch, -1 if it has passed
---          turn        int   the partition that gets the first rows of this epoch
--- COST     O(1), at most 4 calls
--- NOTES    A writer without a claim expires after a year. The script never shortens an expiry.
local codes = require("lib.codes")

local writer = KEYS[1]
local KEEP_MS = 366 * 86400000
local topic_id, epoch, partitions, turn = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local field = "spread:" .. topic_id
local state = redis.call("HMGET", writer, field, "committed")
local of, count, first = string.match(state[1] or "", "^(%d+):(%d+):?(%d*)$")
if math.max(tonumber(of or "-1"), tonumber(state[2] or "-1") + 1) > tonumber(epoch) then
  return { codes.NONE, -1, 0 }
end
if of == epoch then
  return { codes.NONE, tonumber(count), tonumber(first) or 0 }
end

-- Write.
redis.call("HSET", writer, field, epoch .. ":" .. partitions .. ":" .. turn)
if redis.call("PTTL", writer) < 0 then
  redis.call("PEXPIRE", writer, KEEP_MS)
end
return { codes.NONE, tonumber(partitions), tonumber(turn) }
