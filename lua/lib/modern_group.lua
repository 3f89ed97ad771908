--- The stored state of a modern group: its hash, its members, its partitions' owners. A share group
--- (KIP-932) has no instances and owners: its members share partitions. The members of a streams
--- group (KIP-1071) own tasks in place of partitions.
---
--- group              generation: the group epoch, grows with the members and their topics.
---                    assignment_epoch: the epoch of the target assignment; assigned_at_ms: when it
---                    was computed; assignment_size: members and partitions it covered.
---                    bytes: those of all members, without their assignments.
---                    converged: members that own their whole target at that epoch.
---                    epoch_at_ms: when the group epoch grew last.
---                    subscription: topic names and patterns of all members; topics: the topics
---                    that these match, as of the topics table's topics_version.
---                    Of a streams group: topology_epoch, the epoch of its topology; ready: 1 if
---                    the topology's topics are complete; notice: 1 if members have a status to
---                    get, 2 if some may have an older topology; endpoint_epoch: grows with the
---                    tasks of members with user endpoints; replicas: standby tasks of each task;
---                    start_ms: the first target assignment is not computed before; shutdown: the
---                    member that requested the shutdown.
--- consumer_members   member id -> its row (lib.modern_member)
--- target_assignment  member id -> the partitions it should own (lib.partition_list)
--- partition_owners   partition -> its owner (lib.partition_owners)
--- deadlines          "m:" and a member id -> its session or its time to revoke expires
local codes = require("lib.codes")
local modern_member = require("lib.modern_member")
local deadlines = require("lib.deadlines")
local num = require("lib.num")
local partition_list = require("lib.partition_list")
local partition_owners = require("lib.partition_owners")

local M = {}

M.CONSUMER, M.SHARE, M.STREAMS = "consumer", "share", "streams"
M.EMPTY = "Empty"

local STREAMS_COUNTERS = {
  "topology_epoch", "ready", "notice", "endpoint_epoch", "replicas", "start_ms",
}
local COUNTERS = {
  "generation", "assignment_epoch", "converged", "size", "assignment_size", "epoch_at_ms",
  "assigned_at_ms", "bytes",
}

--- Return whether groups of the type are stored as here.
function M.is_stored(type)
  return type == M.CONSUMER or type == M.SHARE or type == M.STREAMS
end

-- Load what only a streams group has.
local function load_streams(g)
  local row = redis.call("HMGET", g.group, "shutdown", unpack(STREAMS_COUNTERS))
  g.shutdown = row[1] or ""
  for i, name in ipairs(STREAMS_COUNTERS) do
    g[name] = tonumber(row[1 + i] or 0)
  end
end

--- Load the group of that type; KEYS are group, consumer_members, target_assignment,
--- partition_owners, instances, deadlines. A share group has no owners and instances.
function M.load(keys, type)
  local g = {
    group = keys[1], members = keys[2], targets = keys[3], deadlines = keys[6], rebalances = 0,
    wanted_type = type,
  }
  if type ~= M.SHARE then
    g.owners, g.instances = keys[4], keys[5]
  end
  if type == M.STREAMS then
    load_streams(g)
  end
  local row = redis.call(
    "HMGET", g.group,
    "type", "state", "topics_version", "assignor", "subscription", unpack(COUNTERS)
  )
  g.type, g.state, g.topics_version = row[1], row[2] or M.EMPTY, row[3] or ""
  g.assignor, g.subscription = row[4] or "uniform", row[5] or ""
  for i, name in ipairs(COUNTERS) do
    g[name] = tonumber(row[5 + i] or 0)
  end
  if g.type ~= type then
    -- A classic group without members is converted: group epochs continue after its generations.
    g.size, g.converged, g.assignment_epoch, g.topics_version, g.subscription = 0, 0, 0, "", ""
    g.bytes = 0
  end
  return g
end

--- Increase the group epoch: a new target assignment is due.
function M.bump_epoch(g, now_ms)
  g.generation, g.epoch_at_ms, g.rebalances = g.generation + 1, now_ms, 1
end

--- Store the group. Without members it becomes Empty; for a group with committed offsets a check
--- for expired ones is then scheduled.
function M.save(g, now_ms)
  if g.size == 0 then
    if g.state ~= M.EMPTY or g.type ~= g.wanted_type then
      redis.call("HSET", g.group, "since", num.text(now_ms))
    end
    g.state, g.converged, g.bytes, g.shutdown = M.EMPTY, 0, 0, g.shutdown and ""
    redis.call("UNLINK", g.members, g.targets)
    if g.owners then
      redis.call("UNLINK", g.owners, g.instances)
      deadlines.check_offsets(g.deadlines, now_ms)
    end
  else
    if g.state == M.EMPTY and g.owners then
      redis.call("ZREM", g.deadlines, deadlines.OFFSETS)
    end
    g.state = "Stable"
    if not g.owners then
      g.converged = 0
    elseif g.ready == 0 then
      g.state = "NotReady"
    elseif g.assignment_epoch < g.generation then
      g.state = "Assigning"
    elseif g.converged < g.size then
      g.state = "Reconciling"
    end
  end
  local fields = {
    "type", g.wanted_type, "protocol_type", g.wanted_type, "state", g.state,
    "topics_version", g.topics_version, "assignor", g.assignor, "subscription", g.subscription,
  }
  for _, names in ipairs({ COUNTERS, g.wanted_type == M.STREAMS and STREAMS_COUNTERS or nil }) do
    for _, name in ipairs(names) do
      fields[#fields + 1], fields[#fields + 2] = name, num.text(g[name])
    end
  end
  if g.shutdown then
    fields[#fields + 1], fields[#fields + 2] = "shutdown", g.shutdown
  end
  redis.call("HSET", g.group, unpack(fields))
end

--- Return the member's row, nil for an unknown member.
function M.get_member(g, id)
  return modern_member.parse(redis.call("HGET", g.members, id))
end

--- Return the `cells(id, member, target)` of all members in one list, ordered by member id.
function M.list_members(members, target_assignment, cells)
  local rows, targets, order, list = redis.call("HGETALL", members), {}, {}, {}
  local flat = redis.call("HGETALL", target_assignment)
  for i = 1, #flat, 2 do
    targets[flat[i]] = flat[i + 1]
  end
  for i = 1, #rows, 2 do
    order[#order + 1] = { rows[i], modern_member.parse(rows[i + 1]) }
  end
  table.sort(order, function(a, b)
    return a[1] < b[1]
  end)
  for _, pair in ipairs(order) do
    for _, cell in ipairs(cells(pair[1], pair[2], targets[pair[1]] or "")) do
      list[#list + 1] = cell
    end
  end
  return list
end

--- Renew the member's session; while it revokes partitions, not beyond its time to revoke.
function M.renew_session(g, id, m, now_ms)
  local moment = now_ms + m.session
  if m.revoking ~= "" then
    moment = math.min(moment, m.revoke_by)
  end
  deadlines.set(g.deadlines, "m:" .. id, moment)
end

--- Return whether the group has room for the member as it is now.
function M.has_room(g, m, max_bytes)
  local grown = modern_member.bytes(m) - m.counted
  return grown <= 0 or g.bytes + grown <= max_bytes
end

--- Store the member and renew its session.
function M.put_member(g, id, m, now_ms)
  -- It is further ahead only if the clock was set back.
  m.revoke_by = math.min(m.revoke_by, now_ms + m.rebalance)
  local bytes = modern_member.bytes(m)
  g.bytes, m.counted = g.bytes + bytes - m.counted, bytes
  redis.call("HSET", g.members, id, modern_member.format(m))
  M.renew_session(g, id, m, now_ms)
end

--- Remove a member. The caller increases the group epoch.
function M.remove_member(g, id, m)
  if g.owners then
    partition_owners.release(g, partition_list.decode(m.assigned), m.process)
    partition_owners.release(g, partition_list.decode(m.revoking), m.process)
  end
  if m.endpoint and m.endpoint ~= "" then
    g.endpoint_epoch = g.endpoint_epoch + 1
  end
  redis.call("HDEL", g.members, id)
  redis.call("HDEL", g.targets, id)
  redis.call("ZREM", g.deadlines, "m:" .. id)
  if m.instance ~= "" then
    redis.call("HDEL", g.instances, m.instance)
  end
  g.size, g.bytes = g.size - 1, g.bytes - m.counted
  if m.converged and m.epoch == g.assignment_epoch then
    g.converged = g.converged - 1
  end
end

--- Remove a member by its id, its instance, or both, for LeaveGroup. Return a lib.codes value.
function M.evict_member(g, id, instance)
  if instance ~= "" then
    local known = redis.call("HGET", g.instances, instance)
    if known and id ~= "" and id ~= known then
      return codes.FENCED_INSTANCE_ID
    end
    id = known or ""
  end
  local m = M.get_member(g, id)
  if not m then
    return codes.UNKNOWN_MEMBER_ID
  end
  M.remove_member(g, id, m)
  return codes.NONE
end

--- Renew all sessions, after a time in which no broker could receive heartbeats.
function M.renew_all_sessions(g, now_ms)
  local flat = redis.call("HGETALL", g.members)
  for i = 1, #flat, 2 do
    local m = modern_member.parse(flat[i + 1])
    if m.revoking ~= "" then
      m.revoke_by = now_ms + m.rebalance
      M.put_member(g, flat[i], m, now_ms)
    else
      M.renew_session(g, flat[i], m, now_ms)
    end
  end
end

--- Process a member's expired deadline: remove the member.
function M.expire(g, name, now_ms)
  redis.call("ZREM", g.deadlines, name)
  local id = string.sub(name, 3)
  local m = M.get_member(g, id)
  if m then
    M.remove_member(g, id, m)
    M.bump_epoch(g, now_ms)
  end
end

return M
