--- group.modern_describe  version 1  reads
--- Return a consumer (KIP-848), share (KIP-932) or streams group (KIP-1071) with its members.
---
--- KEYS     group              hash   state, generation, protocol, counters, votes
---          consumer_members   hash   member id -> epoch, subscription and partitions
---          target_assignment  hash   member id -> the partitions it should own
---          deadlines          zset   member id or phase -> moment, ms
--- ARGV     type               text   consumer, share or streams
--- RETURNS  error              int    a lib.codes value
---          state              bytes  Empty, NotReady, Assigning, Reconciling or Stable
---          epoch              int    the group epoch
---          assignment_epoch   int    the epoch of the target assignment
---          assignor           bytes  uniform, range, simple or sticky
---          topology_epoch     int    the epoch of a streams group's topology, -1 for other types
---          topology           bytes  as lib.streams_topology encodes it
---          detail             bytes  what prevents an assignment, empty for nothing
---          partitions         list   internal topic, its partitions, flat
---          tasks              list   subtopology, its number of tasks, flat
---          members            list   id, instance, rack, client id, client host, epoch, names,
---                                    regex, topology epoch, process id, user endpoint, client
---                                    tags, assignment, target, flat; names and tags are packed,
---                                    partitions and tasks encoded by lib.partition_list
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND
--- COST     O(members + topology), at most 6 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local deadlines = require("lib.deadlines")
local modern_group = require("lib.modern_group")
local modern_reconcile = require("lib.modern_reconcile")
local num = require("lib.num")
local pack = require("lib.pack")
local partition_list = require("lib.partition_list")
local streams_plan = require("lib.streams_plan")
local streams_topology = require("lib.streams_topology")

local group, consumer_members, target_assignment, moments = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local is_streams = ARGV[1] == modern_group.STREAMS

local function refuse(code)
  return { code, "", -1, -1, "", -1, "", "", {}, {}, {} }
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
    id, m.instance, m.rack, m.client_id, m.client_host, num.text(m.epoch), m.names, m.regex,
    m.topology_epoch or "-1", m.process or "", m.endpoint or "", m.tags or "",
    is_streams and m.assigned or partition_list.concat(m.assigned, m.revoking), target,
  }
end

local head = redis.call(
  "HMGET", group, "type", "state", "generation", "assignment_epoch", "assignor", "topology_epoch",
  "topology", "topics"
)
if head[1] ~= ARGV[1] then
  return refuse(codes.GROUP_ID_NOT_FOUND)
end
if deadlines.passed(moments, clock.now_ms()) then
  return refuse(codes.TICK_FIRST)
end
local plan = { detail = "", decided = {}, tasks = {} }
if is_streams then
  local topics = modern_reconcile.decode_topics(pack.unpack(head[8] or ""), 1)
  local counts = modern_reconcile.partition_counts(topics)
  plan = streams_plan.configure(streams_topology.decode(head[7]), counts)
end
return {
  codes.NONE, head[2], tonumber(head[3]), tonumber(head[4]), head[5], tonumber(head[6] or -1),
  head[7] or "", plan.detail, flatten(plan.decided), flatten(plan.tasks),
  modern_group.list_members(consumer_members, target_assignment, cells),
}
