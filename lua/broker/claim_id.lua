--- broker.claim_id  version 1  writes
--- Choose a node id that no live broker has, and hold it until the caller registers.
---
--- KEYS     brokers    hash   node id -> moment the registration ends in ms, a space, the address,
---                            which is empty for an id that is held
--- ARGV     endpoints  bytes  the part of the address that differs between brokers, empty if not
---                            known
---          ttl_ms     int    how long the id is held
--- RETURNS  error      int    a lib.codes value
---          node_id    int    the lowest free id; with the endpoints of a registered broker, its id
--- FULL     always: one field per broker
--- COST     O(brokers), at most 3 calls
--- NOTES    A broker that was killed, and its worker processes, have its endpoints.
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")

local brokers = KEYS[1]
local endpoints, ttl_ms = ARGV[1], tonumber(ARGV[2])

local now_ms = clock.now_ms()
local rows, taken = redis.call("HGETALL", brokers), {}
for i = 1, #rows, 2 do
  local ends, where = string.match(rows[i + 1], "^(%d+) (.*)$")
  if ends then
    if endpoints ~= "" and string.find(where, endpoints, 1, true) then
      return { codes.NONE, tonumber(rows[i]) }
    end
    taken[rows[i]] = tonumber(ends) >= now_ms
  end
end
local id = 0
while taken[num.text(id)] do
  id = id + 1
end

-- Write.
redis.call("HSET", brokers, num.text(id), num.text(now_ms + ttl_ms) .. " ")
return { codes.NONE, id }
