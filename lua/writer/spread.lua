--- writer.spread  version 2  writes
--- All attempts at an epoch spread a topic's rows over as many partitions as the first of them did.
---
--- KEYS     writer      hash   the tasks of one Spark query or job, and what it has committed
--- ARGV     topic_id    bytes  32 hex digits
---          epoch       int    the epoch, 0 for a batch job
---          partitions  int    how many the topic has now
--- RETURNS  error       int    a lib.codes value
---          partitions  int    how many there are for this epoch, -1 when it has passed
--- COST     O(1), at most 2 calls
local codes = require("lib.codes")

local writer = KEYS[1]
local topic_id, epoch, partitions = ARGV[1], ARGV[2], ARGV[3]

local field = "spread:" .. topic_id
local state = redis.call("HMGET", writer, field, "committed")
local of, count = string.match(state[1] or "", "^(%d+):(%d+)$")
if math.max(tonumber(of or "-1"), tonumber(state[2] or "-1") + 1) > tonumber(epoch) then
  return { codes.NONE, -1 }
end
if of == epoch then
  return { codes.NONE, tonumber(count) }
end

-- Write.
redis.call("HSET", writer, field, epoch .. ":" .. partitions)
return { codes.NONE, tonumber(partitions) }
