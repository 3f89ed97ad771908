--- broker.unregister  version 1  writes
--- Remove a broker's registration, unless another broker has registered with its node id.
---
--- KEYS     brokers  hash   node id -> moment the registration ends in ms, a space, the address
--- ARGV     node_id  int    the broker that shuts down
---          address  bytes  the address it registered
--- RETURNS  error    int    a lib.codes value
--- FULL     always: a field is removed
--- COST     O(1), at most 3 calls
local codes = require("lib.codes")

local brokers = KEYS[1]
local node_id, address = ARGV[1], ARGV[2]

-- Write.
local row = redis.call("HGET", brokers, node_id)
if row and string.match(row, "^%d+ (.*)$") == address then
  redis.call("HDEL", brokers, node_id)
  redis.call("PUBLISH", brokers, node_id)
end
return { codes.NONE }
