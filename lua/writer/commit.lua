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
--- COST     O(1), of the last epoch O(tasks), at most 4 calls + 1 per task
local chunks = require("lib.chunks")
local codes = require("lib.codes")

local writer = KEYS[1]
local epoch, keep_ms, last = ARGV[1], ARGV[2], ARGV[3] == "1"

local committed = redis.call("HGET", writer, "committed")
if not committed or tonumber(committed) < tonumber(epoch) then
  committed = epoch
end

-- Write. The hash remains: a script cannot set a key again that it has removed while its slot moves
-- to another node.
local tasks = {}
for _, field in ipairs(last and redis.call("HKEYS", writer) or {}) do
  tasks[#tasks + 1] = field ~= "committed" and field ~= "plan" and field or nil
end
redis.call("HSET", writer, "committed", committed)
chunks.call("HDEL", writer, tasks)
redis.call("PEXPIRE", writer, keep_ms)
return { codes.NONE, tonumber(committed) }
