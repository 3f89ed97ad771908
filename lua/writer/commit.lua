--- writer.commit  version 1  writes
--- Commit an epoch of a writer: a replay of the epoch then writes nothing.
---
--- KEYS     writer     hash   the tasks of one Spark query or job, and what it has committed
--- ARGV     epoch      int    the epoch, 0 for a batch job
---          keep_ms    int    expiry of the writer from now, ms
---          last       int=0  1: the last epoch; the state of the tasks is deleted
--- RETURNS  error      int    a lib.codes value
---          committed  int    the last committed epoch
--- FULL     always: the state of a task that exists is replaced
--- COST     O(1), of the last epoch O(tasks), at most 4 calls
local codes = require("lib.codes")

local writer = KEYS[1]
local epoch, keep_ms, last = ARGV[1], ARGV[2], ARGV[3] == "1"

local state = redis.call("HMGET", writer, "committed", "plan")
local committed, plan = state[1], state[2]
if not committed or tonumber(committed) < tonumber(epoch) then
  committed = epoch
end

-- Write.
if last then
  redis.call("UNLINK", writer)
end
if last and plan then
  redis.call("HSET", writer, "committed", committed, "plan", plan)
else
  redis.call("HSET", writer, "committed", committed)
end
redis.call("PEXPIRE", writer, keep_ms)
return { codes.NONE, tonumber(committed) }
