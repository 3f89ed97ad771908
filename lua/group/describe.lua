--- group.describe  version 1  reads
--- Return a group's state and its classic members.
---
--- KEYS     group          hash   state, generation, protocol, counters, votes
---          members        hash   member id -> timeouts and flags
---          clients        hash   member id -> client id, host, instance
---          protocols      hash   member id -> protocols and metadata
---          instances      hash   group instance id -> member id
---          assignments    hash   member id -> assignment
---          deadlines      zset   member id or phase -> moment, ms
--- ARGV     full           int    1: the members too; 2: with their metadata in every state
--- RETURNS  error          int    a lib.codes value
---          type           bytes  classic or consumer
---          state          bytes  the group state, in Kafka's words
---          generation     int    the generation
---          protocol_type  bytes  `consumer`, ..., empty for a group that never had members
---          protocol       bytes  the chosen protocol
---          leader         bytes  the leader's member id
---          size           int    number of members
---          members        list   id, instance, client id, client host, metadata, assignment, flat
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND
--- COST     O(members), at most 5 calls + 3 per member
--- NOTES    Metadata (of the chosen protocol) and assignments only of a Stable group, unless `full`
---          is 2.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local classic_member = require("lib.classic_member")
local deadlines = require("lib.deadlines")

local full, always = ARGV[1] ~= "0", ARGV[1] == "2"

local g = classic_group.load(KEYS)
if deadlines.passed(g.deadlines, clock.now_ms()) then
  return { codes.TICK_FIRST, "", "", -1, "", "", "", 0, {} }
end
if not g.exists then
  return { codes.GROUP_ID_NOT_FOUND, "", "", -1, "", "", "", 0, {} }
end
local list = {}
for _, pair in ipairs(full and classic_group.list_members(g) or {}) do
  local id = pair[1]
  local client = classic_member.parse_client(redis.call("HGET", g.clients, id))
  local metadata, assignment = "", ""
  if g.state == classic_group.STABLE or always then
    metadata = classic_member.metadata(redis.call("HGET", g.protocols, id), g.protocol)
    assignment = redis.call("HGET", g.assignments, id) or ""
  end
  for _, cell in ipairs({
    id, client.instance or "", client.client_id, client.client_host, metadata, assignment,
  }) do
    list[#list + 1] = cell
  end
end
return {
  codes.NONE, g.type, g.state, g.generation, g.protocol_type, g.protocol, g.leader, g.size, list,
}
