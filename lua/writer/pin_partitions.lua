--- writer.pin_partitions  version 1  writes
--- All attempts at an epoch spread a topic's rows over as many partitions as the first of them did,
--- beginning with the same one.
---
--- KEYS     writer      hash   the tasks of one Spark query or job, and what it has committed
--- ARGV     topic_id    bytes  32 hex digits
---          epoch       int    the epoch, 0 for a batch job
---          partitions  int    how many the topic has now
---          turn        int    which of them may be the first to be given rows, 0 the first
--- RETURNS  error       int    a lib.codes value
---          partitions  int    how many there are for this epoch, -1 when it has passed
---          turn        int    which of them is the first to be given rows in this epoch
--- COST     O(1), at most 4 calls
--- NOTES    An older version kept no turn: there it was 0. And none reads what this one keeps.
---          A writer without any claim is remembered for a year, and no writer for less than before.
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
