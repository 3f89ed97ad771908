--- broker.register  version 1  writes
--- One broker is known to all for a while, brokers not heard from are forgotten, one is controller.
---
--- KEYS     brokers     hash   node id -> moment the registration ends in ms, a space, the address
---          cluster     hash   cluster id, controller, counters
--- ARGV     node_id     int    the broker that says it is alive
---          address     bytes  where clients reach it, opaque here
---          ttl_ms      int    how long the registration holds without another call
---          cluster_id  bytes  the cluster's id unless it has one already
--- RETURNS  error       int    a lib.codes value
---          controller  int    node id of the controller
---          cluster_id  bytes  the cluster's id
---          brokers     list   node id, address, node id, address, ... of every live broker
--- COST     O(brokers), at most 6 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")

local brokers, cluster = KEYS[1], KEYS[2]
local node_id, address, ttl_ms, cluster_id = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local now_ms = clock.now_ms()
local rows = redis.call("HGETALL", brokers)
local known = redis.call("HMGET", cluster, "controller", "cluster_id")

-- Write.
redis.call("HSET", brokers, node_id, num.text(now_ms + ttl_ms) .. " " .. address)
local live, gone, alive = { tonumber(node_id), address }, {}, { [node_id] = true }
for i = 1, #rows, 2 do
  local ends, where = string.match(rows[i + 1], "^(%d+) (.*)$")
  if rows[i] ~= node_id then
    if tonumber(ends) < now_ms then
      gone[#gone + 1] = rows[i]
    else
      live[#live + 1] = tonumber(rows[i])
      live[#live + 1] = where
      alive[rows[i]] = true
    end
  end
end
if #gone > 0 then
  redis.call("HDEL", brokers, unpack(gone))
end
local controller = known[1]
if not controller or not alive[controller] then
  controller = node_id
end
if not known[2] then
  known[2] = cluster_id
end
redis.call("HSET", cluster, "controller", controller, "cluster_id", known[2])
return { codes.NONE, tonumber(controller), known[2], live }
