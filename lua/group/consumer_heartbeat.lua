--- group.consumer_heartbeat  version 1  writes
--- Handle a ConsumerGroupHeartbeat (KIP-848): renew the session, return the assignment.
---
--- KEYS     group              hash   state, generation, protocol, counters, votes
---          consumer_members   hash   member id -> epoch, subscription and partitions
---          target_assignment  hash   member id -> the partitions it should own
---          partition_owners   hash   partition -> epoch and member id of its owner
---          instances          hash   group instance id -> member id
---          deadlines          zset   member id or phase -> moment, ms
--- ARGV     member             text   the member id
---          epoch              int    0: join, -1: leave, -2: static member leaves, else its epoch
---          instance           text   group instance id, empty for none
---          rack               text   its rack, empty for none
---          client_id          text   the client id of the request
---          client_host        text   the client's address
---          session_ms         int    session timeout
---          rebalance_ms       int    rebalance timeout, to revoke partitions, -1: unchanged
---          assignor           text   uniform or range, empty: unchanged
---          max_size           int    group.consumer.max.size
---          max_bytes          int    group.subscription.max.bytes
---          max_topics         int    group.subscription.max.topics
---          is_registered      int    1: the group is in the registry
---          subscription_mask  int    1: names are given, 2: the regex, 3: both, else unchanged
---          names              bytes  packed topic names
---          regex              text   a pattern, empty for none
---          has_owned          int    1: `owned` is given
---          owned              bytes  the partitions it owns, as lib.partition_list encodes them
---          topics_version     bytes  the topics table's version, and that of the ACL rules if used
---          resolved           bytes  the names and the regexes of a reply with need_topics, each
---                                    packed, packed together: their topics follow
---          kind...            text   t: a topic; r: a topic that a pattern matches
---          key...             text   the topic's name; the pattern
---          value...           text   topic id:partitions; the topic's name
--- RETURNS  error              int    a lib.codes value
---          epoch              int    the member's epoch
---          has_assignment     int    1: send `assignment` to the member
---          assignment         bytes  the partitions it may own, as lib.partition_list encodes them
---          next_heartbeat_ms  int    ms until its next heartbeat, 0: the configured interval
---          need_topics        int    1: nothing was written, call again with the topics of these:
---          names              list   topic names members subscribe to
---          regexes            list   patterns members subscribe to
---          wait_ms            int    until the group's next deadline, -1: no new one
---          rebalances         int    1: the group epoch has grown
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID
---          UNRELEASED_INSTANCE_ID FENCED_MEMBER_EPOCH GROUP_MAX_SIZE_REACHED REGISTER_FIRST
--- FULL     is_bounded: one row per member, and few new members (lib.growth)
--- COST     O(the member's partitions), and O(members + partitions) for a target assignment, at
---          most 44 calls + 8 per thousand
--- NOTES    The heartbeat of a member that has converged and sends no news reads two rows and
---          writes one deadline.
local codes = require("lib.codes")
local clock = require("lib.clock")
local consumer_assign = require("lib.consumer_assign")
local modern_group = require("lib.modern_group")
local modern_member = require("lib.modern_member")
local modern_membership = require("lib.modern_membership")
local modern_reconcile = require("lib.modern_reconcile")
local deadlines = require("lib.deadlines")
local growth = require("lib.growth")
local key_types = require("lib.key_types")
local partition_list = require("lib.partition_list")
local partition_owners = require("lib.partition_owners")

local group, members, moments = KEYS[1], KEYS[2], KEYS[6]
local id, epoch, instance = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local session_ms, rebalance_ms, assignor = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local max_size, is_registered, mask = tonumber(ARGV[10]), ARGV[13] == "1", tonumber(ARGV[14])
local max_bytes, max_topics = tonumber(ARGV[11]), tonumber(ARGV[12])
local has_owned, topics_version, resolved = ARGV[17] == "1", ARGV[19], ARGV[20]
local ROWS = 21

local function refuse(code)
  return { code, -1, 0, "", 0, 0, {}, {}, -1, 0 }
end

local now_ms = clock.now_ms()
if deadlines.passed(moments, now_ms) then
  return refuse(codes.TICK_FIRST)
end
local text = redis.call("HGET", members, id)
if text and epoch > 0 and instance == "" and assignor == "" and mask == 0 then
  local next_ms = modern_reconcile.renew_unchanged(
    group, moments, id, text, epoch, topics_version, session_ms, now_ms
  )
  if next_ms then
    return { codes.NONE, epoch, 0, "", next_ms, 0, {}, {}, -1, 0 }
  end
end
local g = modern_group.load(KEYS, modern_group.CONSUMER)
local m = modern_member.parse(text)
local owned = has_owned and partition_list.decode(ARGV[18]) or nil

-- Check.
local verdict, replaced = modern_membership.check(g, id, m, epoch, instance, owned, max_size)
if verdict ~= codes.NONE then
  return refuse(verdict)
end
if not g.type and not is_registered then
  return refuse(codes.REGISTER_FIRST)
end
key_types.hashes(KEYS, 3, 5)
local is_bounded = m or replaced or g.size < growth.MEMBERS

if epoch < 0 then
  -- Write.
  local is_static = epoch == modern_membership.LEAVE_STATIC and instance ~= ""
  local wait_ms, rebalances = modern_membership.leave(g, id, m, is_static, now_ms)
  return { codes.NONE, epoch, 0, "", 0, 0, {}, {}, wait_ms, rebalances }
end

-- Change `g` and `m` only: nothing is written before the topics are known.
-- A member that joins with another instance id is removed and added as a new one.
local joins, former = epoch == 0, nil
if joins and m and instance ~= "" and m.instance ~= instance then
  former, m, text = m, nil, nil
end
local is_repeated = not joins and epoch ~= m.epoch
local had_converged = m and m.converged and m.epoch == g.assignment_epoch
-- With `former` its partitions are released, and assigned anew.
local bumps_epoch = former ~= nil or not m and not replaced
m = replaced or m or modern_member.new()
m.session = session_ms
if rebalance_ms >= 0 then
  m.rebalance = rebalance_ms
end
if assignor ~= "" and assignor ~= m.assignor then
  m.assignor, bumps_epoch = assignor, true
end
local is_covered = true
local names = mask % 2 == 1 and ARGV[15] or m.names
local regex = mask >= 2 and ARGV[16] or m.regex
if m.names ~= names or m.regex ~= regex then
  m.names, m.regex, bumps_epoch = names, regex, true
end
if joins then
  m.rack, m.client_id, m.client_host = ARGV[4], ARGV[5], ARGV[6]
  m.instance = instance ~= "" and instance or m.instance
end
local is_wide = false
if bumps_epoch then
  is_covered, is_wide = modern_reconcile.add_subscription(g, m, max_topics)
end
if is_wide or not modern_group.has_room(g, m, max_bytes) then
  return refuse(codes.GROUP_MAX_SIZE_REACHED)
end
-- A member that joined between the two calls may subscribe to topics that the rows do not have.
local has_topics = modern_reconcile.contains(resolved, g.subscription)
local is_current = topics_version == g.topics_version and is_covered
if resolved ~= "" and not has_topics or resolved == "" and not is_current then
  local all_names, all_regexes = modern_reconcile.decode_subscription(g.subscription)
  return { codes.NONE, -1, 0, "", 0, 1, all_names, all_regexes, -1, 0 }
end

-- Write.
if former then
  modern_group.remove_member(g, id, former)
end
if replaced then
  -- The static member has revoked these by leaving.
  partition_owners.release(g, partition_list.decode(m.revoking))
  m.revoking = ""
  partition_owners.own(g, id, partition_list.decode(m.assigned))
  modern_membership.replace(g, id, replaced)
elseif not text then
  g.size = g.size + 1
end
if joins then
  if had_converged then
    g.converged = g.converged - 1
  end
  m.epoch, m.previous, m.converged = 0, 0, false
  if instance ~= "" then
    redis.call("HSET", g.instances, instance, id)
  end
end
if has_topics then
  bumps_epoch = modern_reconcile.store_topics(g, ARGV, ROWS, topics_version) or bumps_epoch
end
if bumps_epoch then
  modern_group.bump_epoch(g, now_ms)
end
modern_group.put_member(g, id, m, now_ms)
if g.assignment_epoch < g.generation and modern_reconcile.may_assign(g, now_ms, 0) then
  modern_reconcile.assign_targets(g, now_ms, consumer_assign.assign)
end
local reported = owned and partition_list.to_set(owned) or joins and {}
local changed = modern_reconcile.reconcile_member(g, id, m, reported, now_ms)
-- A request with all fields is that of a member that has lost a response.
local is_full = mask > 0 and has_owned and rebalance_ms >= 0
local has_assignment = changed or joins or is_repeated or is_full
modern_group.put_member(g, id, m, now_ms)
modern_group.save(g, now_ms)
local converged = m.converged and m.epoch == g.generation
return {
  codes.NONE, m.epoch, has_assignment and 1 or 0, has_assignment and m.assigned or "",
  modern_reconcile.heartbeat_ms(g, converged, now_ms), 0, {}, {},
  deadlines.wait_ms(moments, now_ms), g.rebalances,
}
