--- group.consumers  version 2  reads
--- A group of the newer protocol with its members.
---
--- KEYS     group      hash   state, generation, protocol, counters, votes
---          consumers  hash   epoch, topics and members
--- RETURNS  error      int    a lib.codes value
---          state      bytes  Kafka's word for it
---          epoch      int    the group's epoch
---          assignor   bytes  uniform or range
---          members    list   id, instance, rack, client id, client host, epoch, names, regex, assigned,
---                            target, flat; names and partitions are packed
--- REFUSES  GROUP_ID_NOT_FOUND
--- COST     O(members), at most 3 calls
local codes = require("lib.codes")
local consumers = require("lib.consumers")
local num = require("lib.num")
local pack = require("lib.pack")

local group, store = KEYS[1], KEYS[2]

if redis.call("HGET", group, "type") ~= "consumer" then
  return { codes.GROUP_ID_NOT_FOUND, "", -1, "", {} }
end
local g = consumers.load(store)
local list, state = {}, #g.order == 0 and "Empty" or "Stable"
for _, id in ipairs(g.order) do
  local m = g.members[id]
  if m.epoch ~= g.epoch or #m.revoking > 0 or #m.assigned ~= #m.target then
    state = "Reconciling"
  end
  for _, cell in ipairs({
    id, m.instance, m.rack, m.client_id, m.client_host, num.text(m.epoch), pack.pack(m.names), m.regex,
    pack.pack(m.assigned), pack.pack(m.target),
  }) do
    list[#list + 1] = cell
  end
end
return { codes.NONE, state, g.epoch, g.assignor or "uniform", list }
