--- The two steps of a modern group (KIP-848): the target assignment, and reconciliation with it.
local chunks = require("lib.chunks")
local clock = require("lib.clock")
local modern_member = require("lib.modern_member")
local deadlines = require("lib.deadlines")
local pack = require("lib.pack")
local partition_list = require("lib.partition_list")
local partition_owners = require("lib.partition_owners")

local M = {}

-- Patterns of a group, at most: a broker compares each with all topics.
local MAX_REGEXES = 100

-- A target assignment of SMALL members and partitions or more is computed at most once in a time
-- that grows with it: one ms per SIZE_PER_MS of them.
local SIZE_PER_MS, SMALL = 10, 200
-- A group is unsettled for UNSETTLED_MS after its epoch grew: members then send heartbeats every
-- SOON_MS, or SOON_MS_PER_MEMBER of them in a larger group.
local UNSETTLED_MS, SOON_MS, SOON_MS_PER_MEMBER = 3000, 500, 5

--- Decode a subscription: a list of topic names, and a list of patterns.
function M.decode_subscription(text)
  local parts = pack.unpack(text)
  return pack.unpack(parts[1] or ""), pack.unpack(parts[2] or "")
end

--- Encode a subscription of two sets.
function M.encode_subscription(names, regexes)
  return pack.pack({
    pack.pack(partition_list.to_list(names)), pack.pack(partition_list.to_list(regexes)),
  })
end

-- The names of packed lists of this run: members often share theirs.
local unpacked = {}

local function names_of(text)
  unpacked[text] = unpacked[text] or pack.unpack(text)
  return unpacked[text]
end

--- Add the member's subscription to the group's. Return whether the group's contained it, and
--- whether the group then has more than `max_topics` names, or too many patterns.
function M.add_subscription(g, m, max_topics)
  local names, regexes = M.decode_subscription(g.subscription)
  local by_name, by_regex = partition_list.to_set(names), partition_list.to_set(regexes)
  local known = true
  local own, topics, patterns = names_of(m.names), #names, #regexes
  for _, name in ipairs(own) do
    if not by_name[name] then
      known, by_name[name], topics = false, true, topics + 1
    end
  end
  if m.regex ~= "" and not by_regex[m.regex] then
    known, by_regex[m.regex], patterns = false, true, patterns + 1
  end
  if not known then
    g.subscription = M.encode_subscription(by_name, by_regex)
  end
  return known, not known and (topics > max_topics or patterns > MAX_REGEXES)
end

--- Return whether the encoded subscription `one`, empty for none, contains `other`.
function M.contains(one, other)
  if one == "" or one == other then
    return one ~= ""
  end
  local names, regexes = M.decode_subscription(other)
  local known_names, known_regexes = M.decode_subscription(one)
  return #partition_list.filter(names, partition_list.to_set(known_names), false) == 0
    and #partition_list.filter(regexes, partition_list.to_set(known_regexes), false) == 0
end

--- Store the topic rows args[from..] of a heartbeat. Return whether they changed.
function M.store_topics(g, args, from, topics_version)
  local list = {}
  for i = from, #args do
    list[#list + 1] = args[i]
  end
  local rows = pack.pack(list)
  g.topics_version = topics_version
  if rows == (redis.call("HGET", g.group, "topics") or "") then
    return false
  end
  redis.call("HSET", g.group, "topics", rows)
  return true
end

--- Decode the topic rows of a heartbeat, list[from..]: kind, key, value.
function M.decode_topics(list, from)
  local topics = { by_name = {}, by_regex = {} }
  for i = from, #list, 3 do
    local kind, key, value = list[i], list[i + 1], list[i + 2]
    if kind == "t" then
      local topic, count = string.match(value, "^(%x+):(%d+)$")
      topics.by_name[key] = { topic, tonumber(count) }
    else
      topics.by_regex[key] = topics.by_regex[key] or {}
      table.insert(topics.by_regex[key], value)
    end
  end
  return topics
end

--- Return the stored topics of the group.
function M.stored_topics(g)
  return M.decode_topics(pack.unpack(redis.call("HGET", g.group, "topics") or ""), 1)
end

--- Return the number of partitions of each topic.
function M.partition_counts(topics)
  local counts = {}
  for name, topic in pairs(topics.by_name) do
    counts[name] = topic[2]
  end
  return counts
end

--- Return whether a target assignment may be computed now: at most one in `interval_ms`, and that
--- of a large group covers many joins.
function M.may_assign(g, now_ms, interval_ms)
  local size_ms = g.assignment_size < SMALL and 0 or g.assignment_size / SIZE_PER_MS
  return g.assignment_epoch == 0 or g.assigned_at_ms > now_ms
    or now_ms - g.assigned_at_ms >= math.max(size_ms, interval_ms)
end

-- Load all members with their former targets. Also return the sets of names and patterns they
-- subscribe to.
local function load_members(g, former)
  local members, parsed, names, regexes = {}, {}, {}, {}
  local rows = redis.call("HGETALL", g.members)
  for i = 1, #rows, 2 do
    local m = modern_member.parse(rows[i + 1])
    m.id, m.former = rows[i], partition_list.decode(former[rows[i]] or "")
    m.topics = names_of(m.names)
    members[#members + 1] = m
    if not parsed[m.names] then
      parsed[m.names] = true
      for _, name in ipairs(names_of(m.names)) do
        names[name] = true
      end
    end
    if m.regex ~= "" then
      regexes[m.regex] = true
    end
  end
  return members, names, regexes
end

--- Compute the target assignment of the group epoch by `assign`, and write the targets that
--- changed. Return the assigned topics: name -> {topic id, partitions}.
function M.assign_targets(g, now_ms, assign)
  local targets, former = redis.call("HGETALL", g.targets), {}
  for i = 1, #targets, 2 do
    former[targets[i]] = targets[i + 1]
  end
  local members, names, regexes = load_members(g, former)
  local topics = M.stored_topics(g)
  local partitions
  g.assignor, partitions = assign(members, topics)
  local changed = {}
  for _, m in ipairs(members) do
    local text = partition_list.encode(m.target)
    if text ~= (former[m.id] or "") then
      changed[#changed + 1], changed[#changed + 2] = m.id, text
    end
  end
  chunks.call("HSET", g.targets, changed)
  g.subscription = M.encode_subscription(names, regexes)
  g.assignment_epoch, g.converged = g.generation, 0
  g.assigned_at_ms, g.assignment_size = now_ms, #members + partitions
  return topics.by_name
end

--- Reconcile the member: revoke what its target lacks, then advance its epoch, then assign what
--- other members have released. `owned` is the set it reported, or nil.
--- Return whether its assignment changed.
function M.reconcile_member(g, id, m, owned, now_ms)
  local target = partition_list.decode(redis.call("HGET", g.targets, id) or "")
  local wanted, changed = partition_list.to_set(target), false
  local assigned = partition_list.decode(m.assigned)
  local had_converged = m.converged and m.epoch == g.assignment_epoch
  local to_revoke = partition_list.filter(assigned, wanted, false)
  local revoking = partition_list.decode(m.revoking)
  if #to_revoke > 0 then
    for _, partition in ipairs(to_revoke) do
      revoking[#revoking + 1] = partition
    end
    assigned, changed = partition_list.filter(assigned, wanted, true), true
    m.revoke_by = now_ms + m.rebalance
  end
  if #revoking > 0 and owned and #partition_list.filter(revoking, owned, true) == 0 then
    partition_owners.release(g, revoking, m.process)
    revoking = {}
  end
  if #revoking == 0 then
    if m.epoch ~= g.assignment_epoch then
      m.previous, m.epoch = math.max(m.epoch, 0), g.assignment_epoch
    end
    local missing = partition_list.filter(target, partition_list.to_set(assigned), false)
    local free = partition_owners.filter_free(g, id, missing, m.process)
    partition_owners.own(g, id, free, m.process)
    for _, partition in ipairs(free) do
      assigned[#assigned + 1], changed = partition, true
    end
  end
  m.converged = #revoking == 0 and #assigned == #target
  local has_converged = m.converged and m.epoch == g.assignment_epoch
  g.converged = g.converged + (has_converged and 1 or 0) - (had_converged and 1 or 0)
  m.assigned, m.revoking = partition_list.encode(assigned), partition_list.encode(revoking)
  return changed
end

--- Return the ms until the member should send its next heartbeat, 0 for the configured interval.
function M.heartbeat_ms(g, converged, now_ms)
  if converged and math.abs(now_ms - g.epoch_at_ms) > UNSETTLED_MS then
    return 0
  end
  return math.max(SOON_MS, SOON_MS_PER_MEMBER * g.size)
end

--- Return whether the epoch is the member's previous one, and it owns nothing that it was not
--- assigned: the response with its newest epoch may have been lost.
function M.is_previous(m, epoch, owned)
  if epoch ~= m.previous or epoch > m.epoch or not owned then
    return false
  end
  local assigned = partition_list.to_set(partition_list.decode(m.assigned))
  return #partition_list.filter(owned, assigned, false) == 0
end

--- Renew the session of a member, stored as `text`, that has its whole target at this epoch, if
--- neither the group nor its topics have changed since. Return the time to its next heartbeat in
--- ms, else nil.
function M.renew_unchanged(group, moments, id, text, epoch, topics_version, session_ms, now_ms)
  local stored_epoch, converged = modern_member.parse_epoch(text)
  local head = redis.call(
    "HMGET", group, "generation", "assignment_epoch", "topics_version", "epoch_at_ms", "size"
  )
  if not converged or stored_epoch ~= epoch or tonumber(head[1]) ~= epoch or head[1] ~= head[2]
    or head[3] ~= topics_version then
    return nil
  end
  -- Write.
  deadlines.set(moments, "m:" .. id, clock.about(now_ms, session_ms))
  local g = { epoch_at_ms = tonumber(head[4]), size = tonumber(head[5]) }
  return M.heartbeat_ms(g, true, now_ms)
end

return M
