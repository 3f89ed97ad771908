--- broker.register  version 1  writes
--- Register a broker for ttl_ms, remove expired brokers, and choose a controller if there is none.
---
--- KEYS     brokers     hash    node id -> moment the registration ends in ms, a space, the
---                              address; field `:controller`: the controller's node id. An id that
---                              broker.claim_id holds has no address: no broker lives there yet
--- ARGV     node_id     int     the calling broker
---          address     bytes   its advertised address, which no script parses
---          ttl_ms      int     how long the registration is valid without another call
---          silent_ms   int=0   age of its last call from which another broker is left out of the
---                              reply, if this one has called since; 0: none is
--- RETURNS  error       int     a lib.codes value
---          controller  int     node id of the controller, kept until its registration ends
---          other       bytes   the address of another live broker with this node id, empty for
---                              none
---          now_ms      int     Redis's time
---          brokers     values  node id, address, node id, address, ... of every live broker but
---                              silent ones
--- FULL     always: one field per broker, and a broker that starts runs retention
--- COST     O(brokers), at most 9 calls
--- NOTES    A registration that ends later than this one predates a step back of Redis's clock:
---          its end is set to this one's.
---          A broker that is left out keeps its registration. If the caller's own last call is old
---          too, Redis did not answer: all are returned.
---          If a broker joins or is removed, a message goes to the channel with the key's name.
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")

local brokers = KEYS[1]
local node_id, address, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local silent_ms = tonumber(ARGV[4])

local now_ms = clock.now_ms()
local rows = redis.call("HGETALL", brokers)
local controller, known_here, other = nil, false, ""
local live, gone, alive = { tonumber(node_id), address }, {}, { [node_id] = true }
local latest, shortened = now_ms + ttl_ms, {}
-- The least end of a registration that was renewed lately, if the caller's was.
local mine = redis.call("HGET", brokers, node_id) or ""
local recent = latest - silent_ms
if silent_ms == 0 or tonumber(string.match(mine, "^%d+") or 0) < recent then
  recent = 0
end
for i = 1, #rows, 2 do
  if rows[i] == ":controller" then
    controller = rows[i + 1]
  elseif rows[i] == node_id then
    local ends, where = string.match(rows[i + 1], "^(%d+) (.*)$")
    known_here = where == address
    if not known_here and where ~= "" and tonumber(ends) >= now_ms then
      other = where
    end
  else
    local ends, where = string.match(rows[i + 1], "^(%d+) (.*)$")
    if tonumber(ends) < now_ms then
      gone[#gone + 1] = rows[i]
    else
      if tonumber(ends) > latest then
        shortened[#shortened + 1] = rows[i]
        shortened[#shortened + 1] = num.text(latest) .. " " .. where
      end
      if where ~= "" then
        alive[rows[i]] = true
        if tonumber(ends) >= recent then
          live[#live + 1] = tonumber(rows[i])
          live[#live + 1] = where
        end
      end
    end
  end
end
if not controller or not alive[controller] then
  controller = node_id
end

-- Write.
redis.call("HDEL", brokers, node_id, unpack(gone))
if #shortened > 0 then
  redis.call("HSET", brokers, unpack(shortened))
end
redis.call(
  "HSET", brokers, node_id, num.text(latest) .. " " .. address, ":controller", controller
)
if not known_here or #gone > 0 then
  redis.call("PUBLISH", brokers, node_id)
end
return { codes.NONE, tonumber(controller), other, now_ms, live }
