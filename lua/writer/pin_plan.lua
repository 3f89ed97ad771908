--- writer.pin_plan  version 1  writes
--- Pin the plan of a job: each run of the job gets the plan of the first run.
---
--- KEYS     writer     hash   the tasks of one Spark query or job, and what it has committed
--- ARGV     plan       bytes  stored if the writer has none
---          keep_ms    int    expiry of the writer from now, ms
--- RETURNS  error      int    a lib.codes value
---          plan       bytes  the writer's plan
---          committed  int    the last committed epoch, -1 for none
--- COST     O(1), at most 3 calls
local codes = require("lib.codes")

local writer = KEYS[1]
local plan, keep_ms = ARGV[1], ARGV[2]

-- Write.
redis.call("HSETNX", writer, "plan", plan)
redis.call("PEXPIRE", writer, keep_ms)
local state = redis.call("HMGET", writer, "plan", "committed")
return { codes.NONE, state[1], tonumber(state[2] or "-1") }
