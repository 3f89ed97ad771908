--- broker.raise_epoch  version 1  writes
--- Return the leader epoch of all partitions, raised if a server of Redis may have lost records.
---
--- KEYS     cluster   hash   cluster id, leases, counters
--- ARGV     least     int    the epoch that the caller knows, -1 for none
---          is_clean  int    1: servers that are new have lost nothing
---          begun     int    the caller has begun this epoch in every log, -1 for none
---          runs...   text   run ids of the servers in use
--- RETURNS  error     int    a lib.codes value
---          epoch     int    the leader epoch
---          due       int    1: no broker has begun it in every log yet
--- FULL     always: a row of at most 200 run ids
--- COST     O(runs), at most 3 calls
--- NOTES    A run id that was not seen before is a restart, a failover or another server: it may
---          lack records. So may a Redis whose epoch is lower than the caller's. The first servers
---          ever have epoch 0.
local codes = require("lib.codes")
local num = require("lib.num")

local cluster = KEYS[1]
local least, is_clean, begun = tonumber(ARGV[1]), ARGV[2] == "1", tonumber(ARGV[3])
local MOST = 200

local row = redis.call("HMGET", cluster, "epoch", "epoch_begun", "servers")
local stored, servers, known = tonumber(row[1] or "-1"), {}, {}
for run in string.gmatch(row[3] or "", "%S+") do
  servers[#servers + 1], known[run] = run, true
end
local seen = #servers
for i = 4, #ARGV do
  if not known[ARGV[i]] then
    servers[#servers + 1], known[ARGV[i]] = ARGV[i], true
  end
end
local epoch = math.max(stored, 0)
if stored < least then
  epoch = least + 1
elseif stored >= 0 and #servers > seen and not is_clean then
  epoch = stored + 1
end
local had_begun = tonumber(row[2] or "0")
begun = math.max(begun, had_begun)

-- Write. Every broker calls this with each heartbeat: hardly ever there is something to write.
if epoch ~= stored or begun ~= had_begun or #servers > seen then
  redis.call(
    "HSET", cluster, "epoch", num.text(epoch), "epoch_begun", num.text(begun), "servers",
    table.concat(servers, " ", math.max(1, #servers - MOST + 1))
  )
end
return { codes.NONE, epoch, begun < epoch and 1 or 0 }
