--- writer.claim_producer_id  version 1  writes
--- Claim the producer id of a writer's task: all attempts of the task get the same one.
---
--- KEYS     writer       hash  the tasks of one Spark query or job, and what it has committed
--- ARGV     slot         text  which task
---          producer_id  int   an unused id, stored if the task has none; -1: only return it
---          keep_ms      int   expiry of the writer from now, ms
--- RETURNS  error        int   a lib.codes value
---          producer_id  int   the task's id, -1 if it has none
---          committed    int   the last committed epoch, -1 for none
--- COST     O(1), at most 3 calls
local codes = require("lib.codes")

local writer = KEYS[1]
local slot, producer_id, keep_ms = ARGV[1], ARGV[2], ARGV[3]

local state = redis.call("HMGET", writer, "committed", "task:" .. slot)
local committed, own = tonumber(state[1] or "-1"), state[2]

-- Write.
if not own and producer_id ~= "-1" then
  redis.call("HSET", writer, "task:" .. slot, producer_id)
  redis.call("PEXPIRE", writer, keep_ms)
  own = producer_id
end
return { codes.NONE, tonumber(own or "-1"), committed }
