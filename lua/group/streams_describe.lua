--- group.streams_describe  version 1  reads
--- Return a streams group (KIP-1071) with its topology and its members.
---
--- KEYS     group              hash   state, generation, protocol, counters, votes
---          consumer_members   hash   member id -> epoch, subscription and partitions
---          target_assignment  hash   member id -> the partitions it should own
---          deadlines          zset   member id or phase -> moment, ms
--- RETURNS  error              int    a lib.codes value
---          state              bytes  Empty, NotReady, Assigning, Reconciling or Stable
---          epoch              int    the group epoch
---          assignment_epoch   int    the epoch of the target assignment
---          topology_epoch     int    the epoch of the topology
---          topology           bytes  as lib.streams_topology encodes it
---          detail             bytes  what prevents an assignment, empty for nothing
---          partitions         list   internal topic, its partitions, flat
---          tasks              list   subtopology, its number of tasks, flat
---          members            list   id, instance, rack, client id, client host, epoch, topology
---                                    epoch, process id, user endpoint, client tags, tasks, target,
---                                    flat; tags are packed, tasks encoded by lib.partition_list
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND
--- COST     O(members + topology), at most 6 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local consumer_group = require("lib.consumer_group")
local consumer_reconcile = require("lib.consumer_reconcile")
local deadlines = require("lib.deadlines")
local num = require("lib.num")
local pack = require("lib.pack")
local partition_list = require("lib.partition_list")
local streams_plan = require("lib.streams_plan")
local streams_topology = require("lib.streams_topology")

local group, consumer_members, target_assignment, moments = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function refuse(code)
  return { code, "", -1, -1, -1, "", "", {}, {}, {} }
end

-- List a table's keys, ordered, with their numbers.
local function flatten(map)
  local list = {}
  for _, key in ipairs(partition_list.to_list(map)) do
    list[#list + 1], list[#list + 2] = key, num.small(map[key])
  end
  return list
end

local function cells(id, m, target)
  return {
    id, m.instance, m.rack, m.client_id, m.client_host, num.text(m.epoch), m.topology_epoch,
    m.process, m.endpoint, m.tags, m.assigned, target,
  }
end

local head = redis.call(
  "HMGET", group, "type", "state", "generation", "assignment_epoch", "topology_epoch", "topology",
  "topics"
)
if head[1] ~= consumer_group.STREAMS then
  return refuse(codes.GROUP_ID_NOT_FOUND)
end
if deadlines.passed(moments, clock.now_ms()) then
  return refuse(codes.TICK_FIRST)
end
local topics = consumer_reconcile.decode_topics(pack.unpack(head[7] or ""), 1)
local counts = consumer_reconcile.partition_counts(topics)
local plan = streams_plan.configure(streams_topology.decode(head[6]), counts)
return {
  codes.NONE, head[2], tonumber(head[3]), tonumber(head[4]), tonumber(head[5]), head[6],
  plan.detail, flatten(plan.decided), flatten(plan.tasks),
  consumer_group.list_members(consumer_members, target_assignment, cells),
}
