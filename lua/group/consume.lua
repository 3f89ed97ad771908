--- group.consume  version 2  writes
--- A member of a group of the newer protocol is alive, and is told what it may hold.
---
--- KEYS     group         hash   state, generation, protocol, counters, votes
---          consumers     hash   epoch, topics and members
---          sessions      zset   member id -> moment it is dead, ms
--- ARGV     member        bytes  the member id
---          epoch         int    0 joins, -1 leaves, -2 leaves for a while, else the member's epoch
---          instance      bytes  group instance id, empty for none
---          rack          bytes  its rack, empty for none
---          client_id     bytes  as in the request's header
---          client_host   bytes  where it is
---          session_ms    int    how long it lives without a heartbeat
---          rebalance_ms  int    how long it may take to give something up, -1: unchanged
---          assignor      bytes  uniform or range, empty: unchanged
---          max_size      int    members a group may have
---          registered    int    1: the group stands in the registry
---          subscribes    int    1: names and regex are given
---          names         bytes  packed topic names
---          regex         bytes  a pattern, empty for none
---          owns          int    1: `owned` is given
---          owned         bytes  packed partitions it holds, topic id:number
---          version       bytes  the topics table's version
---          known         int    1: rows of topics follow
---          kind...       bytes  t: a topic; r: a topic that a pattern matches
---          key...        bytes  the topic's name; the pattern
---          value...      bytes  topic id:partitions; the topic's name
--- RETURNS  error         int    a lib.codes value
---          epoch         int    the member's epoch
---          told          int    1: `assignment` is to be told
---          assignment    list   topic id:number of what it may hold
---          ask           int    1: nothing was done, call again with the topics below
---          names         list   topic names members subscribe to
---          regexes       list   patterns members subscribe to
--- REFUSES  GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID
---          FENCED_INSTANCE_ID GROUP_MAX_SIZE_REACHED COORDINATOR_NOT_AVAILABLE
--- COST     O(members + partitions), at most 20 calls + 40 per row
--- NOTES    A quiet group's heartbeat reads one member and writes one deadline.
local codes = require("lib.codes")
local clock = require("lib.clock")
local consumers = require("lib.consumers")
local num = require("lib.num")
local pack = require("lib.pack")

local group, store, sessions = KEYS[1], KEYS[2], KEYS[3]
local id, epoch, instance = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local session_ms, rebalance_ms, assignor = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local max_size, registered, subscribes = tonumber(ARGV[10]), ARGV[11] == "1", ARGV[12] == "1"
local version, known = ARGV[17], ARGV[18] == "1"
local ROWS = 19

local function refuse(code)
  return { code, -1, 0, {}, 0, {}, {} }
end

local now_ms = clock.now_ms()
local due = redis.call("ZRANGEBYSCORE", sessions, "-inf", num.text(now_ms))
if epoch > 0 and #due == 0 and not subscribes and assignor == "" then
  -- What a quiet group does all day: only the member's own row is looked at.
  if consumers.is_settled(store, id, instance, epoch, version) then
    redis.call("ZADD", sessions, num.text(now_ms + session_ms), id)
    return { codes.NONE, epoch, 0, {}, 0, {}, {} }
  end
end
local head = redis.call("HMGET", group, "type", "state")
local g = consumers.load(store)

-- Whoever is dead, or takes too long to give something up, is no member any more.
local gone, dead = {}, {}
for _, name in ipairs(due) do
  dead[name] = true
end
for _, name in ipairs(g.order) do
  local m = g.members[name]
  if dead[name] or (#m.revoking > 0 and m.revoke_by < now_ms) then
    gone[#gone + 1] = name
    g.members[name] = nil
  end
end

-- Check. Refusals live here.
if head[1] and head[1] ~= "consumer" and head[2] ~= "Empty" then
  return refuse(codes.GROUP_ID_NOT_FOUND)
end
if not head[1] and not registered then
  return refuse(codes.COORDINATOR_NOT_AVAILABLE)
end
local m, replaced = g.members[id], nil
if instance ~= "" then
  for name, row in pairs(g.members) do
    if row.instance == instance and name ~= id then
      if epoch ~= 0 then
        return refuse(codes.FENCED_INSTANCE_ID)
      end
      if row.epoch ~= -2 then
        return refuse(codes.UNRELEASED_INSTANCE_ID)
      end
      replaced = name
    end
  end
end
if not m and epoch ~= 0 then
  return refuse(codes.UNKNOWN_MEMBER_ID)
end
if m and epoch > 0 and epoch ~= m.epoch and (epoch ~= m.previous or epoch > m.epoch) then
  return refuse(codes.FENCED_MEMBER_EPOCH)
end
local size = 0
for _ in pairs(g.members) do
  size = size + 1
end
if not m and not replaced and size >= max_size then
  return refuse(codes.GROUP_MAX_SIZE_REACHED)
end

local changed, fresh = #gone > 0, false
if epoch < 0 then
  if epoch == -2 and m.instance ~= "" then
    m.epoch = -2
  else
    g.members[id], changed = nil, true
    gone[#gone + 1] = id
  end
elseif not m then
  if replaced then
    m = g.members[replaced]
    g.members[replaced] = nil
    gone[#gone + 1] = replaced
    -- What it gave up while it was away is free.
    m.revoking = {}
  else
    changed = true
    m = {
      names = {}, assigned = {}, revoking = {}, target = {}, regex = "", assignor = "",
      rebalance = 300000, revoke_by = 0,
    }
  end
  m.epoch, m.previous, m.instance, m.rack, fresh = 0, 0, instance, ARGV[4], true
  m.client_id, m.client_host = ARGV[5], ARGV[6]
  g.members[id] = m
elseif epoch == 0 then
  fresh = true
end
if epoch >= 0 then
  if rebalance_ms >= 0 then
    m.rebalance = rebalance_ms
  end
  if assignor ~= "" and assignor ~= m.assignor then
    m.assignor, changed = assignor, true
  end
  if subscribes and (pack.pack(m.names) ~= ARGV[13] or m.regex ~= ARGV[14]) then
    m.names, m.regex, changed = pack.unpack(ARGV[13]), ARGV[14], true
  end
end
g.order = {}
for name in pairs(g.members) do
  g.order[#g.order + 1] = name
end
table.sort(g.order)
if (changed or version ~= g.version) and not known then
  local names, regexes = {}, {}
  for _, name in ipairs(g.order) do
    for _, topic in ipairs(g.members[name].names) do
      names[topic] = true
    end
    regexes[g.members[name].regex] = true
  end
  local function keys_of(set)
    local list = {}
    for key in pairs(set) do
      if key ~= "" then
        list[#list + 1] = key
      end
    end
    table.sort(list)
    return list
  end
  return { codes.NONE, -1, 0, {}, 1, keys_of(names), keys_of(regexes) }
end

-- Write.
if known then
  local topics, text = { by_name = {}, by_regex = {} }, {}
  for i = ROWS, #ARGV, 3 do
    local kind, key, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    text[#text + 1] = kind .. " " .. key .. " " .. value
    if kind == "t" then
      local topic, count = string.match(value, "^(%x+):(%d+)$")
      topics.by_name[key] = { topic, tonumber(count) }
    else
      topics.by_regex[key] = topics.by_regex[key] or {}
      table.insert(topics.by_regex[key], value)
    end
  end
  local told = table.concat(text, ",")
  if changed or told ~= g.topics then
    g.epoch, g.topics = g.epoch + 1, told
    consumers.assign(g, topics)
    for _, name in ipairs(g.order) do
      consumers.put(store, name, g.members[name])
    end
    redis.call("HSET", store, ":assignor", g.assignor)
  end
  redis.call("HSET", store, ":epoch", num.text(g.epoch), ":version", version, ":topics", g.topics)
end
for _, name in ipairs(gone) do
  redis.call("HDEL", store, name)
  redis.call("ZREM", sessions, name)
end
redis.call(
  "HSET", group, "type", "consumer", "state", #g.order > 0 and "Stable" or "Empty",
  "protocol_type", "consumer", "generation", num.text(g.epoch), "size", num.text(#g.order),
  "since", num.text(now_ms)
)
if epoch < 0 then
  if epoch == -2 and g.members[id] then
    consumers.put(store, id, m)
  end
  return { codes.NONE, epoch, 0, {}, 0, {}, {} }
end
redis.call("ZADD", sessions, num.text(now_ms + session_ms), id)
local owned = ARGV[15] == "1" and consumers.set(pack.unpack(ARGV[16])) or nil
if fresh then
  owned = owned or {}
end
local moved = consumers.reconcile(g, id, owned, now_ms)
if moved or fresh then
  consumers.put(store, id, m)
end
local tell = moved or fresh or epoch ~= m.epoch
return { codes.NONE, m.epoch, tell and 1 or 0, tell and m.assigned or {}, 0, {}, {} }
