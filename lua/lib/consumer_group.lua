--- The stored state of a consumer group (KIP-848): its hash, its members, its partitions' owners.
--- A share group (KIP-932) is stored alike, without instances and owners: its members share
--- partitions. A streams group (KIP-1071) is stored alike: its members own tasks (lib.task_owners) in
--- place of partitions.
---
--- group              generation: the group epoch, grows with the members and their topics.
---                    assignment_epoch: the epoch of the target assignment; assigned_at_ms: when it
---                    was computed; assignment_size: members and partitions it covered.
---                    converged: members that own their whole target at that epoch.
---                    epoch_at_ms: when the group epoch grew last.
---                    subscription: topic names and patterns of all members; topics: the topics
---                    that these match, as of the topics table's topics_version.
---                    Of a streams group: topology_epoch, the epoch of its topology; ready: 1 if
---                    the topology's topics are complete; notice: 1 if members have a status to
---                    get, 2 if some may have an older topology; endpoint_epoch: grows with the tasks of members with user endpoints;
---                    replicas: standby tasks of each task; start_ms: the first target assignment
---                    is not computed before; shutdown: the member that requested the shutdown.
--- consumer_members   member id -> six numbers, then packed words; of a streams group with process
---                    id, user endpoint, client tags and topology epoch
--- target_assignment  member id -> the partitions it should own
--- partition_owners   partition -> the epoch since when it is owned, a space, and the member that
---                    owns it or has not yet revoked it
--- deadlines          "m:" and a member id -> its session or its time to revoke expires
---
--- A partition is "<topic id>:<number>"; several are encoded as "<topic id>:0,1,2;<topic id>:5".
local codes = require("lib.codes")
local deadlines = require("lib.deadlines")
local num = require("lib.num")
local pack = require("lib.pack")
local task_owners = require("lib.task_owners")

local M = {}

M.CONSUMER, M.SHARE, M.STREAMS = "consumer", "share", "streams"
M.EMPTY, M.ASSIGNING, M.RECONCILING, M.STABLE = "Empty", "Assigning", "Reconciling", "Stable"
M.NOT_READY = "NotReady"

-- Arguments of one command at most: Lua's stack holds some 8,000.
local CHUNK = 1000

local NUMBERS = { "epoch", "previous", "converged", "session", "rebalance", "revoke_by" }
local WORDS = { "instance", "rack", "client_id", "client_host", "assignor", "regex" }
local LISTS = { "names", "assigned", "revoking" }
-- Words that the rows of a streams group's members have too.
local STREAMS_WORDS = { "process", "endpoint", "tags", "topology_epoch" }
local STREAMS_COUNTERS = {
  "topology_epoch", "ready", "notice", "endpoint_epoch", "replicas", "start_ms",
}
local HEAD = "^(%-?%d+) (%d+) ([01]) (%d+) (%d+) (%d+) "
local COUNTERS = {
  "generation", "assignment_epoch", "converged", "size", "assignment_size", "epoch_at_ms",
  "assigned_at_ms",
}

--- Encode partitions.
function M.encode(list)
  local by_topic, order = {}, {}
  for _, partition in ipairs(list) do
    local topic, number = string.match(partition, "^(%x+):(%d+)$")
    if topic then
      if not by_topic[topic] then
        by_topic[topic] = {}
        order[#order + 1] = topic
      end
      local numbers = by_topic[topic]
      numbers[#numbers + 1] = number
    end
  end
  for i, topic in ipairs(order) do
    order[i] = topic .. ":" .. table.concat(by_topic[topic], ",")
  end
  return table.concat(order, ";")
end

--- Decode partitions.
function M.decode(text)
  local list = {}
  for topic, numbers in string.gmatch(text, "(%x+):([%d,]+)") do
    for number in string.gmatch(numbers, "%d+") do
      list[#list + 1] = topic .. ":" .. number
    end
  end
  return list
end

--- Concatenate two encoded lists.
function M.concat(one, other)
  if other == "" then
    return one
  end
  local list = M.decode(one)
  for _, partition in ipairs(M.decode(other)) do
    list[#list + 1] = partition
  end
  return M.encode(list)
end

--- Return a list as a set.
function M.to_set(list)
  local found = {}
  for _, item in ipairs(list) do
    found[item] = true
  end
  return found
end

--- Return the items of `list` that are (or are not) in `set`.
function M.filter(list, set, wanted)
  local found = {}
  for _, item in ipairs(list) do
    if (set[item] == true) == wanted then
      found[#found + 1] = item
    end
  end
  return found
end

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
  end
  return g
end

--- Increase the group epoch: a new target assignment is due.
function M.bump_epoch(g, now_ms)
  g.generation, g.epoch_at_ms, g.rebalances = g.generation + 1, now_ms, 1
end

--- Store the group. Without members it becomes Empty; for a group with committed offsets a check for
--- expired ones is then scheduled.
function M.save(g, now_ms)
  if g.size == 0 then
    if g.state ~= M.EMPTY or g.type ~= g.wanted_type then
      redis.call("HSET", g.group, "since", num.text(now_ms))
    end
    g.state, g.converged, g.shutdown = M.EMPTY, 0, g.shutdown and ""
    redis.call("UNLINK", g.members, g.targets)
    if g.owners then
      redis.call("UNLINK", g.owners, g.instances)
      deadlines.check_offsets(g.deadlines, now_ms)
    end
  else
    if g.state == M.EMPTY and g.owners then
      redis.call("ZREM", g.deadlines, deadlines.OFFSETS)
    end
    g.state = M.STABLE
    if not g.owners then
      g.converged = 0
    elseif g.ready == 0 then
      g.state = M.NOT_READY
    elseif g.assignment_epoch < g.generation then
      g.state = M.ASSIGNING
    elseif g.converged < g.size then
      g.state = M.RECONCILING
    end
  end
  local fields = {
    "type", g.wanted_type, "protocol_type", g.wanted_type, "state", g.state,
    "topics_version", g.topics_version, "assignor", g.assignor, "subscription", g.subscription,
  }
  for _, name in ipairs(COUNTERS) do
    fields[#fields + 1] = name
    fields[#fields + 1] = num.text(g[name])
  end
  for _, name in ipairs(g.wanted_type == M.STREAMS and STREAMS_COUNTERS or {}) do
    fields[#fields + 1] = name
    fields[#fields + 1] = num.text(g[name])
  end
  if g.shutdown then
    fields[#fields + 1], fields[#fields + 2] = "shutdown", g.shutdown
  end
  redis.call("HSET", g.group, unpack(fields))
end

--- Parse a member's row, nil for none. Its partitions stay encoded.
function M.parse_member(text)
  if not text then
    return nil
  end
  local m, at = {}, 1
  local _, last, epoch, previous, converged, session, rebalance, revoke_by = string.find(text, HEAD)
  m.epoch, m.previous, m.converged = tonumber(epoch), tonumber(previous), converged == "1"
  m.session, m.rebalance, m.revoke_by = tonumber(session), tonumber(rebalance), tonumber(revoke_by)
  local list = pack.unpack(string.sub(text, last + 1))
  for _, name in ipairs(WORDS) do
    m[name], at = list[at], at + 1
  end
  for _, name in ipairs(LISTS) do
    m[name], at = list[at], at + 1
  end
  for _, name in ipairs(list[at] and STREAMS_WORDS or {}) do
    m[name], at = list[at], at + 1
  end
  return m
end

--- Return the member's row, nil for an unknown member.
function M.get_member(g, id)
  return M.parse_member(redis.call("HGET", g.members, id))
end

--- Return the `cells(id, member, target)` of all members in one list, ordered by member id.
function M.list_members(members, target_assignment, cells)
  local rows, targets, order, list = redis.call("HGETALL", members), {}, {}, {}
  local flat = redis.call("HGETALL", target_assignment)
  for i = 1, #flat, 2 do
    targets[flat[i]] = flat[i + 1]
  end
  for i = 1, #rows, 2 do
    order[#order + 1] = { rows[i], M.parse_member(rows[i + 1]) }
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

--- Return a row's epoch and whether the member has converged, without parsing the rest.
function M.parse_epoch(text)
  local epoch, converged = string.match(text, "^(%-?%d+) %d+ ([01]) ")
  return tonumber(epoch), converged == "1"
end

--- Renew the member's session; while it revokes partitions, not beyond its time to revoke.
function M.renew_session(g, id, m, now_ms)
  local moment = now_ms + m.session
  if m.revoking ~= "" then
    moment = math.min(moment, m.revoke_by)
  end
  deadlines.set(g.deadlines, "m:" .. id, moment)
end

--- Store the member and renew its session.
function M.put_member(g, id, m, now_ms)
  local list, words = {}, {}
  for i, name in ipairs(NUMBERS) do
    list[i] = name == "converged" and (m.converged and "1" or "0") or num.text(m[name])
  end
  for i, name in ipairs(WORDS) do
    words[i] = m[name]
  end
  for _, name in ipairs(LISTS) do
    words[#words + 1] = m[name]
  end
  for _, name in ipairs(m.process and STREAMS_WORDS or {}) do
    words[#words + 1] = m[name]
  end
  redis.call("HSET", g.members, id, table.concat(list, " ") .. " " .. pack.pack(words))
  M.renew_session(g, id, m, now_ms)
end

--- Remove the owner of these partitions; of these tasks, if the member has a process id.
function M.release_partitions(g, list, process)
  list = process and task_owners.fields(list, process) or list
  for from = 1, #list, CHUNK do
    redis.call("HDEL", g.owners, unpack(list, from, math.min(from + CHUNK - 1, #list)))
  end
end

--- Make the member the owner of these partitions or tasks, since the epoch of the target assignment.
function M.own_partitions(g, id, list, process)
  list = process and task_owners.fields(list, process) or list
  local flat, owner = {}, num.text(g.assignment_epoch) .. " " .. id
  for _, partition in ipairs(list) do
    flat[#flat + 1], flat[#flat + 2] = partition, owner
  end
  for from = 1, #flat, 2 * CHUNK do
    redis.call("HSET", g.owners, unpack(flat, from, math.min(from + 2 * CHUNK - 1, #flat)))
  end
end

local function has_owned_since(owners, id, partition, epoch)
  local since, owner = string.match(redis.call("HGET", owners, partition) or "", "^(%d+) (.*)$")
  return owner == id and tonumber(since) <= epoch
end

--- Return those of the partitions that no other member owns; of the tasks, those that are free for
--- a member of the process.
function M.filter_free(g, id, list, process)
  if process then
    local free = M.filter_free(g, id, task_owners.fields(list, process))
    return task_owners.filter(list, process, M.to_set(free))
  end
  local found = {}
  for from = 1, #list, CHUNK do
    local last = math.min(from + CHUNK - 1, #list)
    local row = redis.call("HMGET", g.owners, unpack(list, from, last))
    for i = from, last do
      local owner = row[i - from + 1]
      if not owner or string.match(owner, "^%d+ (.*)$") == id then
        found[#found + 1] = list[i]
      end
    end
  end
  return found
end

--- Remove a member. The caller increases the group epoch.
function M.remove_member(g, id, m)
  if g.owners then
    M.release_partitions(g, M.decode(m.assigned), m.process)
    M.release_partitions(g, M.decode(m.revoking), m.process)
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
  g.size = g.size - 1
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
    local m = M.parse_member(flat[i + 1])
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

--- Return whether a member may commit the rows args[from..], a lib.codes value. A row is stream
--- key, offset, leader epoch, topic id, metadata; without rows the member fetches offsets.
--- `topology_of`: the group, if it is a streams group: its topology has the topics' tasks.
--- An older epoch is valid for partitions that the member has owned since then (KIP-1251): the
--- commit was sent before the epoch grew. A static member that left temporarily has epoch -2. As in
--- Kafka, the group instance id is not compared: a member that is replaced loses its member id.
function M.check_commit(members, owners, id, epoch, args, from, topology_of)
  local text = redis.call("HGET", members, id)
  if not text then
    return codes.UNKNOWN_MEMBER_ID
  end
  local current = M.parse_epoch(text)
  if epoch == current then
    return codes.NONE
  end
  if epoch > current or epoch < 0 or #args < from then
    return codes.STALE_MEMBER_EPOCH
  end
  local subtopology_of
  if topology_of then
    local streams_topology = require("lib.streams_topology")
    subtopology_of = streams_topology.readers(redis.call("HGET", topology_of, "topology") or "")
  end
  for i = from, #args, 5 do
    local partition = args[i + 3] .. string.match(args[i], ":%d+$")
    if topology_of then
      local topic, number = string.match(args[i], ":([^:]*)(:%d+)$")
      partition = "a" .. (subtopology_of[topic] or "") .. number
    end
    if not has_owned_since(owners, id, partition, epoch) then
      return codes.STALE_MEMBER_EPOCH
    end
  end
  return codes.NONE
end

return M
