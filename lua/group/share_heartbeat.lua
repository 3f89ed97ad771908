--- group.share_heartbeat  version 1  writes
--- Handle a ShareGroupHeartbeat (KIP-932): renew the session, return the assignment.
---
--- KEYS     group              hash   state, generation, protocol, counters, votes
---          consumer_members   hash   member id -> epoch, subscription and partitions
---          target_assignment  hash   member id -> the partitions it should own
---          share_topics       hash   topic -> topic id
---          deadlines          zset   member id or phase -> moment, ms
--- ARGV     member             text   the member id
---          epoch              int    0: join, -1: leave, else its epoch
---          rack               text   its rack, empty: unchanged
---          client_id          text   the client id of the request
---          client_host        text   the client's address
---          session_ms         int    session timeout
---          interval_ms        int    share.assignment.interval.ms
---          max_size           int    group.share.max.size
---          max_bytes          int    group.subscription.max.bytes
---          max_topics         int    group.subscription.max.topics
---          is_registered      int    1: the group is in the registry
---          has_names          int    1: `names` is given
---          names              bytes  packed topic names
---          topics_version     bytes  the topics table's version
---          resolved           bytes  the names of a reply with need_topics, packed twice as
---                                    lib.modern_reconcile encodes them: their topics follow
---          kind...            text   t
---          key...             text   a topic's name
---          value...           text   topic id:partitions
--- RETURNS  error              int    a lib.codes value
---          epoch              int    the member's epoch
---          has_assignment     int    1: send `assignment` to the member
---          assignment         bytes  its partitions, as lib.partition_list encodes them
---          next_heartbeat_ms  int    ms until its next heartbeat, 0: the configured interval
---          need_topics        int    1: nothing was written, call again with the topics of these:
---          names              list   topic names members subscribe to
---          wait_ms            int    until the group's next deadline, -1: no new one
---          rebalances         int    1: the group epoch has grown
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND GROUP_MAX_SIZE_REACHED UNKNOWN_MEMBER_ID
---          FENCED_MEMBER_EPOCH REGISTER_FIRST
--- FULL     is_bounded: one row per member, and few new members (lib.growth)
--- COST     O(the member's partitions), and O(members + partitions) for a target assignment, at
---          most 31 calls + 8 per thousand
--- NOTES    The heartbeat of a member that sends no news reads two rows and writes one deadline.
---          GROUP_ID_NOT_FOUND: there is no share group of that id, but maybe one of another type.
---          share_topics: the topics that have been assigned, until their offsets or a subscribed
---          topic itself are deleted.
local codes = require("lib.codes")
local chunks = require("lib.chunks")
local clock = require("lib.clock")
local modern_group = require("lib.modern_group")
local modern_member = require("lib.modern_member")
local modern_membership = require("lib.modern_membership")
local modern_reconcile = require("lib.modern_reconcile")
local deadlines = require("lib.deadlines")
local growth = require("lib.growth")
local key_types = require("lib.key_types")
local share_assign = require("lib.share_assign")

local group, members, share_topics, moments = KEYS[1], KEYS[2], KEYS[4], KEYS[5]
local id, epoch, rack = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local session_ms, interval_ms = tonumber(ARGV[6]), tonumber(ARGV[7])
local max_size, is_registered, has_names = tonumber(ARGV[8]), ARGV[11] == "1", ARGV[12] == "1"
local max_bytes, max_topics = tonumber(ARGV[9]), tonumber(ARGV[10])
local topics_version, resolved = ARGV[14], ARGV[15]
local ROWS = 16

local g

local function refuse(code)
  return { code, -1, 0, "", 0, 0, {}, -1, 0 }
end

-- Add the assigned topics to those of the group, and remove those that no longer exist.
local function note_topics(topics)
  local flat, gone = {}, {}
  for _, name in ipairs(modern_reconcile.decode_subscription(g.subscription)) do
    local topic = topics[name]
    if topic then
      flat[#flat + 1], flat[#flat + 2] = name, topic[1]
    else
      gone[#gone + 1] = name
    end
  end
  chunks.call("HSET", share_topics, flat)
  chunks.call("HDEL", share_topics, gone)
end

local now_ms = clock.now_ms()
if deadlines.passed(moments, now_ms) then
  return refuse(codes.TICK_FIRST)
end
local text = redis.call("HGET", members, id)
if text and epoch > 0 and not has_names then
  local next_ms = modern_reconcile.renew_unchanged(
    group, moments, id, text, epoch, topics_version, session_ms, now_ms
  )
  if next_ms then
    return { codes.NONE, epoch, 0, "", next_ms, 0, {}, -1, 0 }
  end
end
g = modern_group.load({ group, members, KEYS[3], "", "", moments }, modern_group.SHARE)
local m = modern_member.parse(text)

-- Check.
if g.type ~= modern_group.SHARE and (g.type or epoch ~= 0) then
  return refuse(codes.GROUP_ID_NOT_FOUND)
end
if not m and epoch >= 0 and g.size >= max_size then
  return refuse(codes.GROUP_MAX_SIZE_REACHED)
end
if not m and epoch ~= 0 then
  return refuse(codes.UNKNOWN_MEMBER_ID)
end
-- The response with its newest epoch may have been lost: the previous epoch is valid.
if epoch > 0 and epoch ~= m.epoch and (epoch > m.epoch or epoch ~= m.previous) then
  return refuse(codes.FENCED_MEMBER_EPOCH)
end
if not g.type and not is_registered then
  return refuse(codes.REGISTER_FIRST)
end
key_types.hashes(KEYS, 3, 4)
local is_bounded = m or g.size < growth.MEMBERS

if epoch < 0 then
  -- Write.
  local wait_ms, rebalances = modern_membership.leave(g, id, m, false, now_ms)
  return { codes.NONE, epoch, 0, "", 0, 0, {}, wait_ms, rebalances }
end

-- Change `g` and `m` only: nothing is written before the topics are known.
local bumps_epoch, is_covered, is_wide = false, true, false
m = m or modern_member.new()
m.session, m.client_id, m.client_host = session_ms, ARGV[4], ARGV[5]
m.rack = rack ~= "" and rack or m.rack
if has_names and m.names ~= ARGV[13] then
  m.names, bumps_epoch = ARGV[13], true
  is_covered, is_wide = modern_reconcile.add_subscription(g, m, max_topics)
end
if is_wide or not modern_group.has_room(g, m, max_bytes) then
  return refuse(codes.GROUP_MAX_SIZE_REACHED)
end
-- A member that joined between the two calls may subscribe to topics that the rows do not have.
local has_topics = modern_reconcile.contains(resolved, g.subscription)
local is_current = topics_version == g.topics_version and is_covered
if resolved ~= "" and not has_topics or resolved == "" and not is_current then
  local names = modern_reconcile.decode_subscription(g.subscription)
  return { codes.NONE, -1, 0, "", 0, 1, names, -1, 0 }
end

-- Write.
if not text then
  g.size, bumps_epoch = g.size + 1, true
end
if has_topics then
  bumps_epoch = modern_reconcile.store_topics(g, ARGV, ROWS, topics_version) or bumps_epoch
end
if bumps_epoch then
  modern_group.bump_epoch(g, now_ms)
end
modern_group.put_member(g, id, m, now_ms)
if g.assignment_epoch < g.generation and modern_reconcile.may_assign(g, now_ms, interval_ms) then
  note_topics(modern_reconcile.assign_targets(g, now_ms, share_assign.assign))
end
local changed = m.epoch ~= g.assignment_epoch
if changed then
  local target = redis.call("HGET", g.targets, id) or ""
  m.previous, m.epoch, m.converged = m.epoch, g.assignment_epoch, true
  changed, m.assigned = m.assigned ~= target, target
  modern_group.put_member(g, id, m, now_ms)
end
modern_group.save(g, now_ms)
local has_assignment = changed or epoch == 0 or has_names
return {
  codes.NONE, m.epoch, has_assignment and 1 or 0, has_assignment and m.assigned or "",
  modern_reconcile.heartbeat_ms(g, m.epoch == g.generation, now_ms), 0, {},
  deadlines.wait_ms(moments, now_ms), g.rebalances,
}
