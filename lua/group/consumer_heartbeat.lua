--- group.consumer_heartbeat  version 1  writes
--- A member of a group of the newer protocol is alive, and is told what it may hold.
---
--- KEYS     group              hash   state, generation, protocol, counters, votes
---          consumer_members   hash   member id -> its epoch, subscription and partitions
---          target_assignment  hash   member id -> the partitions it should have
---          partition_owners   hash   partition -> since when which member has it
---          instances          hash   group instance id -> member id
---          deadlines          zset   member id or phase -> moment, ms
--- ARGV     member             bytes  the member id
---          epoch              int    0 joins, -1 leaves, -2 leaves for a while, else the member's epoch
---          instance           bytes  group instance id, empty for none
---          rack               bytes  its rack, empty for none
---          client_id          bytes  as in the request's header
---          client_host        bytes  where it is
---          session_ms         int    how long it lives without a heartbeat
---          rebalance_ms       int    how long it may take to give something up, -1: unchanged
---          assignor           bytes  uniform or range, empty: unchanged
---          max_size           int    members a group may have
---          is_registered      int    1: the group stands in the registry
---          subscription_mask  int    1: names are given, 2: the regex is, 3: both; the rest is unchanged
---          names              bytes  packed topic names
---          regex              bytes  a pattern, empty for none
---          has_owned          int    1: `owned` is given
---          owned              bytes  the partitions it holds, as lib.consumer_group spells them
---          version            bytes  the topics table's version
---          resolved           bytes  the names and the regexes of an answer with need_topics, each packed, packed
---                                    together, whose topics follow; empty: none follow
---          kind...            bytes  t: a topic; r: a topic that a pattern matches
---          key...             bytes  the topic's name; the pattern
---          value...           bytes  topic id:partitions; the topic's name
--- RETURNS  error              int    a lib.codes value
---          epoch              int    the member's epoch
---          has_assignment     int    1: `assignment` is to be told
---          assignment         bytes  what it may hold, as lib.consumer_group spells it
---          next_heartbeat_ms  int    when it should be heard of again, 0: as usual
---          need_topics        int    1: nothing was done, call again with the topics of what is below
---          names              list   topic names members subscribe to
---          regexes            list   patterns members subscribe to
---          wait_ms            int    until somebody has to look at the group, -1: nothing new to say
---          began              int    1: the group's epoch has grown
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID
---          UNRELEASED_INSTANCE_ID FENCED_MEMBER_EPOCH GROUP_MAX_SIZE_REACHED
---          COORDINATOR_NOT_AVAILABLE
--- COST     O(the member's partitions), and O(members + partitions) when targets are made, at most 43
---          calls + 8 per thousand
--- NOTES    A quiet group's heartbeat reads two rows and writes one deadline.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first. COORDINATOR_NOT_AVAILABLE neither: register the group first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local consumer_group = require("lib.consumer_group")
local key_types = require("lib.key_types")
local pack = require("lib.pack")
local consumer_reconcile = require("lib.consumer_reconcile")

local group, consumer_members, deadlines = KEYS[1], KEYS[2], KEYS[6]
local id, epoch, instance = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local session_ms, rebalance_ms, assignor = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local max_size, is_registered, subscription_mask = tonumber(ARGV[10]), ARGV[11] == "1", tonumber(ARGV[12])
local has_owned, version, resolved = ARGV[15] == "1", ARGV[17], ARGV[18]
local ROWS = 19

local function refuse(code)
  return { code, -1, 0, "", 0, 0, {}, {}, -1, 0 }
end

-- Whether `resolved` has all that the group wants; both are spelled alike.
local function covers(asked_for, wants)
  if asked_for == wants then
    return true
  end
  local names, regexes = consumer_reconcile.wants(wants)
  local asked_names, asked_regexes = consumer_reconcile.wants(asked_for)
  return #consumer_group.pick(names, consumer_group.set(asked_names), false) == 0
    and #consumer_group.pick(regexes, consumer_group.set(asked_regexes), false) == 0
end

local now_ms = clock.now_ms()
local first = redis.call("ZRANGE", deadlines, 0, 0, "WITHSCORES")
if first[1] and tonumber(first[2]) <= now_ms then
  return refuse(codes.COORDINATOR_LOAD_IN_PROGRESS)
end
local text = redis.call("HGET", consumer_members, id)
if text and epoch > 0 and instance == "" and assignor == "" and subscription_mask == 0 then
  local its, converged = consumer_group.glance(text)
  local head = redis.call("HMGET", group, "generation", "assignment_epoch", "version", "epoch_at_ms", "size")
  if converged and its == epoch and tonumber(head[1]) == its and head[1] == head[2]
    and head[3] == version then
    redis.call("ZADD", deadlines, clock.about(now_ms, session_ms), "m:" .. id)
    local g = { epoch_at_ms = tonumber(head[4]), size = tonumber(head[5]) }
    return { codes.NONE, epoch, 0, "", consumer_reconcile.soon_ms(g, true, now_ms), 0, {}, {}, -1, 0 }
  end
end
local g = consumer_group.load(KEYS)
local m, replaced = consumer_group.parse(text), nil

-- Check. Refusals live here.
if g.type and g.type ~= "consumer" and g.state ~= consumer_group.EMPTY then
  return refuse(codes.GROUP_ID_NOT_FOUND)
end
if g.type ~= "consumer" and epoch ~= 0 then
  return refuse(codes.GROUP_ID_NOT_FOUND)
end
if instance ~= "" then
  local other = redis.call("HGET", g.instances, instance)
  if other and other ~= id then
    if epoch ~= 0 then
      return refuse(codes.FENCED_INSTANCE_ID)
    end
    if consumer_group.member(g, other).epoch ~= -2 then
      return refuse(codes.UNRELEASED_INSTANCE_ID)
    end
    replaced = other
  end
end
if epoch ~= 0 and (not m or m.instance ~= instance and instance ~= "") then
  return refuse(codes.UNKNOWN_MEMBER_ID)
end
-- Whoever joins as another instance than it was is somebody new.
local former
if epoch == 0 and m and instance ~= "" and m.instance ~= instance then
  former, m, text = m, nil, nil
end
local owned = has_owned and consumer_group.read(ARGV[16]) or nil
local lost = m and epoch > 0 and epoch ~= m.epoch
if lost then
  -- The answer that has_assignment it of its newest epoch may have been lost.
  local late = epoch == m.previous and epoch < m.epoch and owned
  if not late or #consumer_group.pick(owned, consumer_group.set(consumer_group.read(m.assigned)), false) > 0 then
    return refuse(codes.FENCED_MEMBER_EPOCH)
  end
end
if not m and not replaced and not former and g.size >= max_size then
  return refuse(codes.GROUP_MAX_SIZE_REACHED)
end
if not g.type and not is_registered then
  return refuse(codes.COORDINATOR_NOT_AVAILABLE)
end
key_types.hashes(KEYS, 3, 5)

local was = m and m.converged and m.epoch == g.assignment_epoch
if epoch == -2 and instance ~= "" then
  -- Write.
  m.epoch, m.converged = -2, false
  g.converged = g.converged - (was and 1 or 0)
  consumer_group.put(g, id, m, now_ms)
  consumer_group.save(g, now_ms)
  return { codes.NONE, epoch, 0, "", 0, 0, {}, {}, consumer_group.wait_ms(g, now_ms), 0 }
end
if epoch < 0 then
  -- Write.
  consumer_group.remove(g, id, m)
  consumer_group.move(g, now_ms)
  consumer_group.save(g, now_ms)
  return { codes.NONE, epoch, 0, "", 0, 0, {}, {}, consumer_group.wait_ms(g, now_ms), 1 }
end

-- What the group would be, in `g` and `m`; nothing is written before the topics are known.
local moves, fresh = false, epoch == 0
if replaced then
  -- What it was before is free, and is assigned anew.
  m, moves = consumer_group.member(g, replaced), former ~= nil
elseif not m then
  m = {
    epoch = 0, previous = 0, rebalance = 0, revoke_by = 0, converged = false, assignor = "", regex = "",
    names = "", assigned = "", revoking = "", rack = "", instance = "", client_id = "", client_host = "",
  }
  moves = true
end
m.session = session_ms
if rebalance_ms >= 0 then
  m.rebalance = rebalance_ms
end
if assignor ~= "" and assignor ~= m.assignor then
  m.assignor, moves = assignor, true
end
local covered = true
local names = subscription_mask % 2 == 1 and ARGV[13] or m.names
local regex = subscription_mask >= 2 and ARGV[14] or m.regex
if m.names ~= names or m.regex ~= regex then
  m.names, m.regex, moves = names, regex, true
end
if moves then
  covered = consumer_reconcile.want(g, m)
end
-- Whoever came in between may want what these rows leave out.
local known = resolved ~= "" and covers(resolved, g.subscription)
if resolved ~= "" and not known or resolved == "" and (version ~= g.version or not covered) then
  local all_names, all_regexes = consumer_reconcile.wants(g.subscription)
  return { codes.NONE, -1, 0, "", 0, 1, all_names, all_regexes, -1, 0 }
end

-- Write.
if former then
  consumer_group.remove(g, id, former)
end
if replaced then
  -- What it gave up while it was away is free.
  consumer_group.release(g, consumer_group.read(m.revoking))
  m.revoking = ""
  local target = redis.call("HGET", g.target_assignment, replaced)
  consumer_group.hold(g, id, consumer_group.read(m.assigned))
  redis.call("HDEL", consumer_members, replaced)
  redis.call("HDEL", g.target_assignment, replaced)
  redis.call("ZREM", deadlines, "m:" .. replaced)
  if target then
    redis.call("HSET", g.target_assignment, id, target)
  end
elseif not text then
  g.size = g.size + 1
end
if fresh then
  if was then
    g.converged = g.converged - 1
  end
  m.epoch, m.previous, m.converged, m.rack = 0, 0, false, ARGV[4]
  m.client_id, m.client_host = ARGV[5], ARGV[6]
  if instance ~= "" then
    m.instance = instance
    redis.call("HSET", g.instances, instance, id)
  end
end
if known then
  local list = {}
  for i = ROWS, #ARGV do
    list[#list + 1] = ARGV[i]
  end
  local rows = pack.pack(list)
  if rows ~= (redis.call("HGET", group, "topics") or "") then
    redis.call("HSET", group, "topics", rows)
    moves = true
  end
  g.version = version
end
if moves then
  consumer_group.move(g, now_ms)
end
consumer_group.put(g, id, m, now_ms)
if g.assignment_epoch < g.generation and consumer_reconcile.is_time(g, now_ms) then
  consumer_reconcile.deal(g, now_ms)
end
local has_assignment = consumer_reconcile.approach(g, id, m, owned and consumer_group.set(owned) or fresh and {}, now_ms)
has_assignment = has_assignment or fresh or lost or (subscription_mask > 0 and has_owned and rebalance_ms >= 0)
consumer_group.put(g, id, m, now_ms)
consumer_group.save(g, now_ms)
local converged = m.converged and m.epoch == g.generation
return {
  codes.NONE, m.epoch, has_assignment and 1 or 0, has_assignment and m.assigned or "",
  consumer_reconcile.soon_ms(g, converged, now_ms), 0, {}, {}, consumer_group.wait_ms(g, now_ms), g.began,
}
