--- group.streams_heartbeat  version 1  writes
--- Handle a StreamsGroupHeartbeat (KIP-1071): renew the session, return the tasks.
---
--- KEYS     group              hash   state, generation, protocol, counters, votes
---          consumer_members   hash   member id -> epoch, subscription and partitions
---          target_assignment  hash   member id -> the partitions it should own
---          partition_owners   hash   partition -> epoch and member id of its owner
---          instances          hash   group instance id -> member id
---          deadlines          zset   member id or phase -> moment, ms
--- ARGV     member             text   the member id
---          epoch              int    0: join, -1: leave, -2: static member leaves, else its epoch
---          rack               text   its rack, empty: unchanged
---          client_id          text   the client id of the request
---          client_host        text   the client's address
---          session_ms         int    session timeout
---          rebalance_ms       int    rebalance timeout, to revoke tasks, -1: unchanged
---          interval_ms        int    streams.assignment.interval.ms
---          delay_ms           int    streams.initial.rebalance.delay.ms
---          replicas           int    streams.num.standby.replicas
---          max_size           int    group.streams.max.size
---          max_bytes          int    group.subscription.max.bytes
---          is_registered      int    1: the group is in the registry
---          topology_epoch     int    the epoch of `topology`, -1: it is not given
---          topology           bytes  the topology, as lib.streams_topology encodes it
---          has_process        int    1: `process` is given
---          process            text   its process id
---          endpoint           text   its user endpoint, host:port, empty: unchanged
---          has_tags           int    1: `tags` is given
---          tags               bytes  its client tags: key, value, packed
---          has_owned          int    1: `owned` is given
---          owned              bytes  the tasks it owns, as lib.partition_list encodes them
---          endpoint_epoch     int    the endpoint epoch that it has
---          shutdown           int    1: it requests the shutdown of the application
---          topics_version     bytes  the topics table's version
---          resolved           bytes  the names of a reply with need_topics, packed twice as
---                                    lib.modern_reconcile encodes them: their topics follow
---          creates            int    1: internal topics can be created, if nothing is written yet
---          instance           text   group instance id, empty for none
---          kind...            text   t
---          key...             text   a topic's name
---          value...           text   topic id:partitions
--- RETURNS  error              int    a lib.codes value
---          epoch              int    the member's epoch
---          has_assignment     int    1: send `assignment` to the member
---          assignment         bytes  its tasks, as lib.partition_list encodes them
---          next_heartbeat_ms  int    ms until its next heartbeat, 0: the configured interval
---          need_topics        int    1: nothing was written, call again with the topics of these:
---          names              list   topic names of the topology
---          missing            list   nothing was written, create these internal topics and call
---                                    again: name, partitions, replication factor, configs, flat
---          statuses           list   code and detail of each status, flat
---          endpoint_epoch     int    the endpoint epoch
---          has_endpoints      int    1: send `endpoints` to the member
---          endpoints          list   endpoint, active and standby partitions, flat
---          wait_ms            int    until the group's next deadline, -1: no new one
---          rebalances         int    1: the group epoch has grown
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID
---          UNRELEASED_INSTANCE_ID FENCED_MEMBER_EPOCH GROUP_MAX_SIZE_REACHED INVALID_REQUEST
---          STREAMS_INVALID_TOPOLOGY REGISTER_FIRST
--- FULL     is_bounded: one row per member, and few new members (lib.growth)
--- COST     O(the member's tasks + topology), and O(members * tasks) for a target assignment, at
---          most 61 calls + 8 per thousand
--- NOTES    The heartbeat of a member that has converged and sends no news reads three rows and
---          writes one deadline.
---          INVALID_REQUEST: another topology than the members', or a task that it does not have.
local codes = require("lib.codes")
local clock = require("lib.clock")
local modern_group = require("lib.modern_group")
local modern_member = require("lib.modern_member")
local modern_membership = require("lib.modern_membership")
local modern_reconcile = require("lib.modern_reconcile")
local deadlines = require("lib.deadlines")
local growth = require("lib.growth")
local key_types = require("lib.key_types")
local num = require("lib.num")
local pack = require("lib.pack")
local partition_list = require("lib.partition_list")
local partition_owners = require("lib.partition_owners")
local streams_assign = require("lib.streams_assign")
local streams_plan = require("lib.streams_plan")
local streams_status = require("lib.streams_status")
local streams_topology = require("lib.streams_topology")

local group, members, moments = KEYS[1], KEYS[2], KEYS[6]
local id, epoch, instance = ARGV[1], tonumber(ARGV[2]), ARGV[28]
local session_ms, rebalance_ms = tonumber(ARGV[6]), tonumber(ARGV[7])
local interval_ms, delay_ms = tonumber(ARGV[8]), tonumber(ARGV[9])
local replicas, max_size = tonumber(ARGV[10]), tonumber(ARGV[11])
local topology_epoch, topology = tonumber(ARGV[14]), ARGV[15]
local has_owned, endpoint_epoch, shuts_down = ARGV[21] == "1", tonumber(ARGV[23]), ARGV[24] == "1"
local max_bytes = tonumber(ARGV[12])
local topics_version, resolved, creates = ARGV[25], ARGV[26], ARGV[27] == "1"
local ROWS = 29
-- The group has had a member with an older topology.
local STALE = 2

local function refuse(code)
  return { code, -1, 0, "", 0, 0, {}, {}, {}, 0, 0, {}, -1, 0 }
end

-- Return the time to the member's next heartbeat if nothing concerns it, else nil.
local function renew_unchanged(text, now_ms)
  local has_news = ARGV[3] ~= "" or rebalance_ms >= 0 or ARGV[16] == "1" or ARGV[18] ~= ""
    or ARGV[19] == "1" or has_owned or shuts_down or instance ~= ""
  if not text or epoch <= 0 or has_news then
    return nil
  end
  local row = redis.call("HMGET", group, "notice", "endpoint_epoch", "replicas")
  if row[1] ~= "0" or tonumber(row[2]) ~= endpoint_epoch or tonumber(row[3]) ~= replicas then
    return nil
  end
  return modern_reconcile.renew_unchanged(
    group, moments, id, text, epoch, topics_version, session_ms, now_ms
  )
end

-- Return what a rebalance follows from, if it changes.
local function metadata(m)
  return pack.pack({
    m.rack, m.client_id, m.client_host, m.process, m.endpoint, m.tags, m.topology_epoch,
    num.text(m.rebalance),
  })
end

-- Update the member by the request. Return whether anything differs.
local function update(m)
  local before = metadata(m)
  m.session, m.client_id, m.client_host = session_ms, ARGV[4], ARGV[5]
  m.rebalance = rebalance_ms >= 0 and rebalance_ms or m.rebalance
  m.rack = ARGV[3] ~= "" and ARGV[3] or m.rack
  -- A member that joins owns nothing: only then can its tasks pass to another process.
  m.process = epoch == 0 and ARGV[16] == "1" and ARGV[17] or m.process
  m.endpoint = ARGV[18] ~= "" and ARGV[18] or m.endpoint
  m.tags = ARGV[19] == "1" and ARGV[20] or m.tags
  m.topology_epoch = topology_epoch >= 0 and ARGV[14] or m.topology_epoch
  return before ~= metadata(m)
end

-- Return the assignor: no member has tasks while topics are missing or incorrectly partitioned.
local function assignor(subs, plan)
  local list = {}
  for _, sub in ipairs(plan.status and {} or subs) do
    list[#list + 1] = {
      id = sub.id, count = plan.tasks[sub.id], is_stateful = #sub.changelogs > 0,
    }
  end
  return function(all)
    return streams_assign.assign(all, list, replicas)
  end
end

local now_ms = clock.now_ms()
if deadlines.passed(moments, now_ms) then
  return refuse(codes.TICK_FIRST)
end
local text = redis.call("HGET", members, id)
local next_ms = renew_unchanged(text, now_ms)
if next_ms then
  return { codes.NONE, epoch, 0, "", next_ms, 0, {}, {}, {}, endpoint_epoch, 0, {}, -1, 0 }
end
local g = modern_group.load(KEYS, modern_group.STREAMS)
local m = modern_member.parse(text)
local is_new = g.type ~= modern_group.STREAMS
local owned = has_owned and partition_list.decode(ARGV[22]) or nil

-- Check.
local verdict, replaced = modern_membership.check(g, id, m, epoch, instance, owned, max_size)
if verdict ~= codes.NONE then
  return refuse(verdict)
end
local stored = not is_new and redis.call("HGET", group, "topology") or nil
-- A group without members takes the topology of the first one, unless that is older.
if g.size == 0 and topology_epoch >= g.topology_epoch then
  stored = nil
end
local is_stale = stored and topology_epoch < g.topology_epoch
if stored and topology_epoch >= 0 and not is_stale
  and (topology ~= stored or topology_epoch ~= g.topology_epoch) then
  return refuse(codes.INVALID_REQUEST)
end
if is_new and not g.type and ARGV[13] ~= "1" then
  return refuse(codes.REGISTER_FIRST)
end
key_types.hashes(KEYS, 3, 5)
local is_bounded = m or replaced or g.size < growth.MEMBERS

if epoch < 0 then
  -- Write.
  local is_static = epoch == modern_membership.LEAVE_STATIC
  local wait_ms, rebalances = modern_membership.leave(g, id, m, is_static, now_ms)
  return { codes.NONE, epoch, 0, "", 0, 0, {}, {}, {}, 0, 0, {}, wait_ms, rebalances }
end

-- Change `g` and `m` only: nothing is written before the topics are known.
local subs = streams_topology.decode(stored or topology)
local names = streams_topology.topics(subs)
local subscription = modern_reconcile.encode_subscription(partition_list.to_set(names), {})
local has_topics = modern_reconcile.contains(resolved, subscription)
if not has_topics and (topics_version ~= g.topics_version or subscription ~= g.subscription) then
  return { codes.NONE, -1, 0, "", 0, 1, names, {}, {}, 0, 0, {}, -1, 0 }
end
local topics = has_topics and modern_reconcile.decode_topics(ARGV, ROWS)
  or modern_reconcile.stored_topics(g)
local counts = modern_reconcile.partition_counts(topics)
local plan = streams_plan.configure(subs, counts)
if not plan then
  return refuse(codes.STREAMS_INVALID_TOPOLOGY)
end
if not streams_plan.has_tasks(plan, owned or {}) then
  return refuse(codes.INVALID_REQUEST)
end
if creates and #plan.missing > 0 then
  local missing = streams_plan.list_missing(plan)
  return { codes.NONE, -1, 0, "", 0, 0, {}, missing, {}, 0, 0, {}, -1, 0 }
end
-- A member that joins with another instance id is removed and added as a new one.
local joins, former = epoch == 0, nil
if joins and m and instance ~= "" and m.instance ~= instance then
  former, m, text = m, nil, nil
end
local is_repeated = not joins and epoch ~= m.epoch
local is_ready = plan.status and 0 or 1
m = replaced or m
local bumps_epoch = is_new or not m or g.ready ~= is_ready or g.replicas ~= replicas
local former_process = m and m.process
m = m or modern_member.new(true)
bumps_epoch = update(m) or bumps_epoch
m.instance = joins and instance ~= "" and instance or m.instance
if not modern_group.has_room(g, m, max_bytes) then
  return refuse(codes.GROUP_MAX_SIZE_REACHED)
end

-- Write.
if is_new then
  -- Epochs begin as in Kafka: the first target assignment is that of epoch 2.
  g.generation = math.max(g.generation, 1)
  g.assignment_epoch = g.generation
end
if not stored then
  g.topology_epoch, g.notice = topology_epoch, 0
  redis.call("HSET", group, "topology", topology)
end
if former then
  modern_group.remove_member(g, id, former)
end
if replaced then
  m.epoch, m.previous = 0, 0
  modern_membership.replace(g, id, replaced)
elseif not text then
  if g.size == 0 then
    g.start_ms = delay_ms > 0 and now_ms + delay_ms or 0
  end
  g.size = g.size + 1
end
if former_process and (replaced or former_process ~= m.process) then
  -- Tasks that another member of its new process has are left out.
  local list = partition_list.decode(m.assigned)
  partition_owners.release(g, partition_list.decode(m.revoking), former_process)
  partition_owners.release(g, list, former_process)
  list = partition_owners.filter_free(g, id, list, m.process)
  partition_owners.own(g, id, list, m.process)
  m.assigned, m.revoking = partition_list.encode(list), ""
end
if joins and instance ~= "" then
  redis.call("HSET", g.instances, instance, id)
end
g.subscription, g.ready, g.replicas = subscription, is_ready, replicas
g.shutdown = shuts_down and id or g.shutdown
if is_stale or g.notice == STALE then
  g.notice = STALE
else
  g.notice = (plan.status or g.shutdown ~= "") and 1 or 0
end
if has_topics then
  bumps_epoch = modern_reconcile.store_topics(g, ARGV, ROWS, topics_version) or bumps_epoch
end
if bumps_epoch then
  modern_group.bump_epoch(g, now_ms)
end
modern_group.put_member(g, id, m, now_ms)
local delay
if g.assignment_epoch < g.generation then
  -- It is further ahead only if the clock was set back.
  g.start_ms = math.min(g.start_ms, now_ms + delay_ms)
  if now_ms < g.start_ms then
    delay = "initial rebalance delay"
  elseif not modern_reconcile.may_assign(g, now_ms, interval_ms) then
    delay = "assignment interval"
  else
    modern_reconcile.assign_targets(g, now_ms, assignor(subs, plan))
    g.subscription = subscription
  end
end
local reported = owned and partition_list.to_set(owned) or joins and {}
local changed = modern_reconcile.reconcile_member(g, id, m, reported, now_ms)
-- A request with all fields is that of a member that has lost a response.
local is_full = has_owned and rebalance_ms >= 0
local has_assignment = changed or joins or is_repeated or is_full
if has_assignment and m.endpoint ~= "" then
  g.endpoint_epoch = g.endpoint_epoch + 1
end
modern_group.put_member(g, id, m, now_ms)
modern_group.save(g, now_ms)
local has_endpoints = g.endpoint_epoch ~= endpoint_epoch
-- Kafka Streams gives up if topics are missing for two heartbeat intervals: these are not
-- shortened.
local soon_ms = plan.status and 0
  or modern_reconcile.heartbeat_ms(g, m.converged and m.epoch == g.generation, now_ms)
return {
  codes.NONE, m.epoch, has_assignment and 1 or 0, has_assignment and m.assigned or "",
  soon_ms, 0, {}, {},
  streams_status.list(g, m, plan, delay), g.endpoint_epoch, has_endpoints and 1 or 0,
  has_endpoints and streams_status.endpoints(g, subs, counts) or {},
  deadlines.wait_ms(moments, now_ms), g.rebalances,
}
