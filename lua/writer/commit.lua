--- writer.commit  version 1  writes
--- An epoch of a writer is done: what a replay of it brings is passed over.
---
--- KEYS     writer     hash  the tasks of one Spark query or job, and what it has committed
--- ARGV     epoch      int   the epoch, 0 for a batch job
---          keep_ms    int   the writer is remembered for so long from now, ms
--- RETURNS  error      int   a lib.codes value
---          committed  int   the last committed epoch
--- COST     O(1), at most 3 calls
local codes = require("lib.codes")

local writer = KEYS[1]
local epoch, keep_ms = ARGV[1], ARGV[2]

local committed = redis.call("HGET", writer, "committed")

-- Write.
if not committed or tonumber(committed) < tonumber(epoch) then
  redis.call("HSET", writer, "committed", epoch)
  committed = epoch
end
redis.call("PEXPIRE", writer, keep_ms)
return { codes.NONE, tonumber(committed) }
