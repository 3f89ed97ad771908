--- How a group whose broker assigns comes from its members to targets, and from targets to members.
local consumer_assign = require("lib.consumer_assign")
local consumer_group = require("lib.consumer_group")
local pack = require("lib.pack")

local M = {}

-- Targets of a large group are made at most so often: for this many members and partitions, a ms.
local WEIGHT_PER_MS, LIGHT = 10, 200
-- A group is unsettled for so long after its last change, and then has so many heartbeats a second.
local LIVELY_MS, SOON_MS, SOON_MS_PER_MEMBER = 3000, 500, 5

--- What members subscribe to as names and patterns, two lists.
function M.wants(text)
  local parts = pack.unpack(text)
  return pack.unpack(parts[1] or ""), pack.unpack(parts[2] or "")
end

-- The other way round: two sets.
local function spell_wants(names, regexes)
  local function sorted(set)
    local list = {}
    for item in pairs(set) do
      list[#list + 1] = item
    end
    table.sort(list)
    return pack.pack(list)
  end
  return pack.pack({ sorted(names), sorted(regexes) })
end

--- The group wants what the member subscribes to. Returns whether it did before.
function M.want(g, m)
  local names, regexes = M.wants(g.subscription)
  local by_name, by_regex, known = consumer_group.set(names), consumer_group.set(regexes), true
  for _, name in ipairs(pack.unpack(m.names)) do
    known, by_name[name] = known and by_name[name] == true, true
  end
  if m.regex ~= "" then
    known, by_regex[m.regex] = known and by_regex[m.regex] == true, true
  end
  if not known then
    g.subscription = spell_wants(by_name, by_regex)
  end
  return known
end

-- The rows that the topics table gave: kind, key, value, packed.
local function topics_of(text)
  local topics, list = { by_name = {}, by_regex = {} }, pack.unpack(text)
  for i = 1, #list, 3 do
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

--- Whether targets may be made now: those of a large group are made for many changes at once.
function M.is_time(g, now_ms)
  return g.assignment_epoch == 0 or g.assignment_size < LIGHT or now_ms - g.assigned_at_ms >= g.assignment_size / WEIGHT_PER_MS
end

--- Every member has a target of the group's epoch; only those that changed are written.
function M.deal(g, now_ms)
  local rows, targets = redis.call("HGETALL", g.consumer_members), redis.call("HGETALL", g.target_assignment)
  local before, members, seen, names, regexes = {}, {}, {}, {}, {}
  for i = 1, #targets, 2 do
    before[targets[i]] = targets[i + 1]
  end
  for i = 1, #rows, 2 do
    local m = consumer_group.parse(rows[i + 1])
    m.id, m.before = rows[i], consumer_group.read(before[rows[i]] or "")
    members[#members + 1] = m
    if not seen[m.names] then
      seen[m.names] = true
      for _, name in ipairs(pack.unpack(m.names)) do
        names[name] = true
      end
    end
    if m.regex ~= "" then
      regexes[m.regex] = true
    end
  end
  local topics = topics_of(redis.call("HGET", g.group, "topics") or "")
  local total
  g.assignor, total = consumer_assign.assign(members, topics)
  local changed = {}
  for _, m in ipairs(members) do
    local text = consumer_group.spell(m.target)
    if text ~= (before[m.id] or "") then
      changed[#changed + 1], changed[#changed + 2] = m.id, text
    end
  end
  for from = 1, #changed, 1000 do
    redis.call("HSET", g.target_assignment, unpack(changed, from, math.min(from + 999, #changed)))
  end
  g.subscription = spell_wants(names, regexes)
  g.assignment_epoch, g.converged, g.assigned_at_ms, g.assignment_size = g.generation, 0, now_ms, #members + total
end

--- The member comes as near to its target as others let it. Returns whether what it may hold changed.
function M.approach(g, id, m, owned, now_ms)
  local target = consumer_group.read(redis.call("HGET", g.target_assignment, id) or "")
  local wanted, told = consumer_group.set(target), false
  local assigned, was = consumer_group.read(m.assigned), m.converged and m.epoch == g.assignment_epoch
  local leaving = consumer_group.pick(assigned, wanted, false)
  local revoking = consumer_group.read(m.revoking)
  if #leaving > 0 then
    for _, partition in ipairs(leaving) do
      revoking[#revoking + 1] = partition
    end
    assigned, told = consumer_group.pick(assigned, wanted, true), true
    m.revoke_by = now_ms + m.rebalance
  end
  if #revoking > 0 and owned and #consumer_group.pick(revoking, owned, true) == 0 then
    consumer_group.release(g, revoking)
    revoking = {}
  end
  if #revoking == 0 then
    if m.epoch ~= g.assignment_epoch then
      m.previous, m.epoch = math.max(m.epoch, 0), g.assignment_epoch
    end
    local free = consumer_group.free(g, id, consumer_group.pick(target, consumer_group.set(assigned), false))
    consumer_group.hold(g, id, free)
    for _, partition in ipairs(free) do
      assigned[#assigned + 1], told = partition, true
    end
  end
  m.converged = #revoking == 0 and #assigned == #target
  local is = m.converged and m.epoch == g.assignment_epoch
  g.converged = g.converged + (is and 1 or 0) - (was and 1 or 0)
  m.assigned, m.revoking = consumer_group.spell(assigned), consumer_group.spell(revoking)
  return told
end

--- How soon the member should be heard of again, ms; 0: as usual.
function M.soon_ms(g, converged, now_ms)
  if converged and now_ms - g.epoch_at_ms > LIVELY_MS then
    return 0
  end
  return math.max(SOON_MS, SOON_MS_PER_MEMBER * g.size)
end

return M
