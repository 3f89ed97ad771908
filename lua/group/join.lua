--- group.join  version 1  writes
--- Handle a JoinGroup: add or update the member, rebalance, return a completed generation.
---
--- KEYS     group              hash   state, generation, protocol, counters, votes
---          members            hash   member id -> timeouts and flags
---          clients            hash   member id -> client id, host, instance
---          protocols          hash   member id -> protocols and metadata
---          instances          hash   group instance id -> member id
---          assignments        hash   member id -> assignment
---          deadlines          zset   member id or phase -> moment, ms
--- ARGV     member             text   the member id, empty for a new member
---          fresh_id           text   the id that a new member gets
---          instance           text   group instance id, empty for a dynamic member
---          client_id          text   the client id of the request
---          client_host        text   the client's address
---          session_ms         int    session timeout
---          rebalance_ms       int    rebalance timeout
---          protocol_type      text   `consumer`, `connect`, ...
---          require_member_id  int    1: answer MEMBER_ID_REQUIRED to a new member (version 4 on)
---          skip               int    1: the version has skip_assignment (9 on)
---          is_registered      int    1: the group is in the registry
---          delay_ms           int    group.initial.rebalance.delay.ms
---          max_size           int    group.max.size
---          max_bytes          int    group.max.bytes
---          name...            text   a protocol's name
---          metadata...        bytes  the member's metadata for it
--- RETURNS  error              int    a lib.codes value
---          waiting            int    1: call group.poll_join until it returns 0
---          generation         int    the generation, -1 on an error or while waiting
---          protocol_type      bytes  the group's
---          protocol           bytes  the chosen protocol
---          leader             bytes  the leader's member id
---          member             bytes  the member's id
---          skip               int    1: the leader keeps the current assignment
---          members            list   for the leader: id, instance, metadata of each member, flat
---          wait_ms            int    until the group's next deadline, -1 for none
---          rebalances         int    rebalances that this call began
--- REFUSES  UNKNOWN_MEMBER_ID GROUP_MAX_SIZE_REACHED INCONSISTENT_GROUP_PROTOCOL FENCED_INSTANCE_ID
---          REGISTER_FIRST TICK_FIRST
--- SIGNALS  MEMBER_ID_REQUIRED
--- FULL     is_bounded: one row per member, and few new members (lib.growth)
--- COST     O(members) when a rebalance begins or ends, at most 30 calls + 9 per member
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local classic_member = require("lib.classic_member")
local classic_membership = require("lib.classic_membership")
local classic_rebalance = require("lib.classic_rebalance")
local deadlines = require("lib.deadlines")
local growth = require("lib.growth")
local key_types = require("lib.key_types")
local pack = require("lib.pack")

local id, fresh_id, instance = ARGV[1], ARGV[2], ARGV[3]
local session_ms, rebalance_ms, protocol_type = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local require_member_id, may_skip, is_registered = ARGV[9] == "1", ARGV[10] == "1", ARGV[11] == "1"
local delay_ms, max_size = tonumber(ARGV[12]), tonumber(ARGV[13])
local max_bytes = tonumber(ARGV[14])
local PROTOCOLS = 15

local g = classic_group.load(KEYS)
if g.state == classic_group.EMPTY and g.type ~= "share" then
  g.type = "classic"
end
local now_ms = clock.now_ms()
local names, packed = {}, {}
for i = PROTOCOLS, #ARGV, 2 do
  names[#names + 1] = ARGV[i]
  packed[#packed + 1], packed[#packed + 2] = ARGV[i], ARGV[i + 1]
end

local function refuse(code, member)
  return { code, 0, -1, "", "", "", member, 0, {}, -1, g.rebalances }
end

local function accept(member, leader, skip)
  local list = leader == member and classic_group.list_for_leader(g, member) or {}
  return {
    codes.NONE, 0, g.generation, g.protocol_type, g.protocol, leader, member, skip, list,
    deadlines.wait_ms(g.deadlines, now_ms), g.rebalances,
  }
end

-- Check.
if deadlines.passed(g.deadlines, now_ms) then
  return refuse(codes.TICK_FIRST, id)
end
if g.type == "share" then
  return refuse(codes.INCONSISTENT_GROUP_PROTOCOL, "")
end
if not g.exists and id ~= "" then
  return refuse(codes.UNKNOWN_MEMBER_ID, id)
end
local row = id ~= "" and classic_group.get_member(g, id) or nil
local is_full = g.size >= max_size and not row
local is_new = id == "" and instance == ""
if g.state == classic_group.PREPARING then
  is_full = g.awaiting >= max_size and not (row and row.awaiting)
end
if is_full and g.state ~= classic_group.EMPTY or is_new and g.pending >= max_size then
  return refuse(codes.GROUP_MAX_SIZE_REACHED, "")
end
if not classic_membership.supports_protocols(g, protocol_type, names) then
  return refuse(codes.INCONSISTENT_GROUP_PROTOCOL, id)
end
local pending = id ~= "" and classic_group.is_pending(g, id)
local replaced
if id == "" then
  replaced = instance ~= "" and redis.call("HGET", g.instances, instance)
elseif not pending or instance ~= "" then
  local verdict = classic_group.check_member(g, id, instance)
  if verdict ~= codes.NONE then
    return refuse(verdict, id)
  end
  if g.state == classic_group.EMPTY then
    return refuse(codes.UNKNOWN_MEMBER_ID, id)
  end
end
if not g.exists and not is_registered then
  return refuse(codes.REGISTER_FIRST, id)
end
local joining = {
  id = id == "" and fresh_id or id,
  session = session_ms,
  rebalance = rebalance_ms,
  type = protocol_type,
  names = names,
  protocols = pack.pack(packed),
  instance = instance,
  client = classic_member.format_client(ARGV[4], ARGV[5], instance),
}
local former = row and id or replaced
local grown = #joining.protocols - #(former and redis.call("HGET", g.protocols, former) or "")
if grown > 0 and g.bytes + grown > max_bytes then
  return refuse(codes.GROUP_MAX_SIZE_REACHED, "")
end
local is_follower = g.state == classic_group.STABLE and g.leader ~= id
if row and (g.state == classic_group.COMPLETING or is_follower) then
  if redis.call("HGET", g.protocols, id) == joining.protocols then
    return accept(id, g.leader, 0)
  end
end
key_types.hashes(KEYS, 2, 6)
local is_bounded = row or pending or replaced or g.size + g.pending < growth.MEMBERS

-- Write.
if replaced then
  local leader, protocol = g.leader, g.protocol
  local back = classic_membership.replace_static_member(g, replaced, joining)
  classic_membership.update_member(g, back, joining)
  if g.state == classic_group.STABLE and classic_membership.choose_protocol(g) == protocol then
    back.awaiting, g.awaiting = false, g.awaiting - 1
    classic_group.put_member(g, joining.id, back)
    classic_group.renew_session(g, joining.id, back, now_ms)
    classic_group.save(g)
    if may_skip then
      return accept(joining.id, g.leader, g.leader == joining.id and 1 or 0)
    end
    -- Older versions have no skip_assignment: the former leader id keeps a leader from assigning.
    return accept(joining.id, leader, 0)
  end
  classic_rebalance.member_joined(g, now_ms)
elseif id == "" and require_member_id and instance == "" then
  classic_membership.add_pending(g, joining.id, session_ms, now_ms)
  if g.state == classic_group.EMPTY then
    deadlines.check_offsets(g.deadlines, now_ms)
  end
  classic_group.save(g)
  return {
    codes.MEMBER_ID_REQUIRED, 0, -1, "", "", "", joining.id, 0, {},
    deadlines.wait_ms(g.deadlines, now_ms), 0,
  }
elseif row then
  classic_membership.update_member(g, row, joining)
  classic_rebalance.member_joined(g, now_ms)
else
  classic_membership.add_member(g, joining, now_ms)
  classic_rebalance.member_joined(g, now_ms, delay_ms)
end
classic_group.save(g)
if g.state == classic_group.PREPARING then
  return {
    codes.NONE, 1, -1, "", "", "", joining.id, 0, {}, deadlines.wait_ms(g.deadlines, now_ms),
    g.rebalances,
  }
end
return accept(joining.id, g.leader, 0)
