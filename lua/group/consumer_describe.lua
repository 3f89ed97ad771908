--- group.consumer_describe  version 1  reads
--- Return a consumer group (KIP-848) or a share group (KIP-932) with its members.
---
--- KEYS     group              hash   state, generation, protocol, counters, votes
---          consumer_members   hash   member id -> epoch, subscription and partitions
---          target_assignment  hash   member id -> the partitions it should own
---          deadlines          zset   member id or phase -> moment, ms
--- ARGV     type               text   consumer or share
--- RETURNS  error              int    a lib.codes value
---          state              bytes  Empty, Assigning, Reconciling or Stable
---          epoch              int    the group epoch
---          assignment_epoch   int    the epoch of the target assignment
---          assignor           bytes  uniform, range or simple
---          members            list   id, instance, rack, client id, client host, epoch, names,
---                                    regex, assignment, target, flat; names are packed, partitions
---                                    encoded by lib.partition_list
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND
--- COST     O(members), at most 6 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local consumer_group = require("lib.consumer_group")
local deadlines = require("lib.deadlines")
local num = require("lib.num")
local partition_list = require("lib.partition_list")

local group, consumer_members, target_assignment, moments = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local head = redis.call(
  "HMGET", group, "type", "state", "generation", "assignment_epoch", "assignor"
)
if head[1] ~= ARGV[1] then
  return { codes.GROUP_ID_NOT_FOUND, "", -1, -1, "", {} }
end
if deadlines.passed(moments, clock.now_ms()) then
  return { codes.TICK_FIRST, "", -1, -1, "", {} }
end
local function cells(id, m, target)
  return {
    id, m.instance, m.rack, m.client_id, m.client_host, num.text(m.epoch), m.names, m.regex,
    partition_list.concat(m.assigned, m.revoking), target,
  }
end
local list = consumer_group.list_members(consumer_members, target_assignment, cells)
return { codes.NONE, head[2], tonumber(head[3]), tonumber(head[4]), head[5], list }
