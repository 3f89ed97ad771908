--- group.join  version 1  writes
--- A member waits for the next generation, or has its place in the current one.
---
--- KEYS     group              hash   state, generation, protocol, counters, votes
---          members            hash   member id -> timeouts and flags
---          clients            hash   member id -> client id, host, instance
---          protocols          hash   member id -> protocols and metadata
---          instances          hash   group instance id -> member id
---          assignments        hash   member id -> assignment
---          deadlines          zset   member id or phase -> moment, ms
--- ARGV     member             bytes  the member id, empty for somebody new
---          fresh_id           bytes  the id somebody new will have
---          instance           bytes  group instance id, empty for a dynamic member
---          client_id          bytes  client id, for people
---          client_host        bytes  client address, for people
---          session_ms         int    silence after which the member is dead
---          rebalance_ms       int    how long it may take to join again
---          protocol_type      bytes  `consumer`, `connect`, ...
---          require_member_id  int    1: somebody new is sent away with its id (from version 4 on)
---          skip               int    1: a leader that comes back may be told to keep the assignment
---          is_registered      int    1: the group stands in the registry
---          delay_ms           int    group.initial.rebalance.delay.ms
---          max_size           int    group.max.size
---          name...            bytes  a protocol's name
---          metadata...        bytes  the member's metadata for it
--- RETURNS  error              int    a lib.codes value
---          waiting            int    1: ask group.poll_join until it says 0
---          generation         int    the generation, -1 when refused or waiting
---          protocol_type      bytes  the group's
---          protocol           bytes  the chosen protocol
---          leader             bytes  the leader's member id
---          member             bytes  the member's id
---          skip               int    1: the assignment stands, a leader need not compute one
---          members            list   for the leader: id, instance, metadata of each member, flat
---          wait_ms            int    until the group's next deadline, -1 for none
---          began              int    rebalances begun by this call
--- REFUSES  UNKNOWN_MEMBER_ID GROUP_MAX_SIZE_REACHED INCONSISTENT_GROUP_PROTOCOL FENCED_INSTANCE_ID
---          COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS
--- SIGNALS  MEMBER_ID_REQUIRED
--- COST     O(members) when a rebalance begins or ends, at most 29 calls + 9 per member
--- NOTES    COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first. COORDINATOR_NOT_AVAILABLE neither: register the group first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local key_types = require("lib.key_types")
local pack = require("lib.pack")
local classic_rebalance = require("lib.classic_rebalance")
local classic_membership = require("lib.classic_membership")

local id, fresh_id, instance = ARGV[1], ARGV[2], ARGV[3]
local session_ms, rebalance_ms, protocol_type = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local require_member_id, may_skip, is_registered = ARGV[9] == "1", ARGV[10] == "1", ARGV[11] == "1"
local delay_ms, max_size = tonumber(ARGV[12]), tonumber(ARGV[13])
local PROTOCOLS = 14

local g = classic_group.load(KEYS)
if g.state == classic_group.EMPTY then
  g.type = "classic"
end
local now_ms = clock.now_ms()
local names, packed = {}, {}
for i = PROTOCOLS, #ARGV, 2 do
  names[#names + 1] = ARGV[i]
  packed[#packed + 1], packed[#packed + 2] = ARGV[i], ARGV[i + 1]
end

local function refuse(code, who)
  return { code, 0, -1, "", "", "", who, 0, {}, -1, g.began }
end

local function answer(who, leader, skip)
  local roster = leader == who and classic_group.roster(g, who) or {}
  return {
    codes.NONE, 0, g.generation, g.protocol_type, g.protocol, leader, who, skip, roster,
    classic_group.wait_ms(g, now_ms), g.began,
  }
end

-- Check. Refusals live here.
if classic_group.overdue(g, now_ms) then
  return refuse(codes.COORDINATOR_LOAD_IN_PROGRESS, id)
end
if not g.exists and id ~= "" then
  return refuse(codes.UNKNOWN_MEMBER_ID, id)
end
local row = id ~= "" and classic_group.row(g, id) or nil
local full = g.size >= max_size and not row
if g.state == classic_group.PREPARING then
  full = g.awaiting >= max_size and not (row and row.awaiting)
end
if full and g.state ~= classic_group.EMPTY then
  return refuse(codes.GROUP_MAX_SIZE_REACHED, "")
end
if not classic_membership.supports(g, protocol_type, names) then
  return refuse(codes.INCONSISTENT_GROUP_PROTOCOL, id)
end
local pending = id ~= "" and classic_group.is_pending(g, id)
local replaced
if id == "" then
  replaced = instance ~= "" and redis.call("HGET", g.instances, instance)
elseif not pending or instance ~= "" then
  local verdict = classic_group.validate(g, id, instance)
  if verdict ~= codes.NONE then
    return refuse(verdict, id)
  end
  if g.state == classic_group.EMPTY then
    return refuse(codes.UNKNOWN_MEMBER_ID, id)
  end
end
if not g.exists and not is_registered then
  return refuse(codes.COORDINATOR_NOT_AVAILABLE, id)
end
local joining = {
  id = id == "" and fresh_id or id,
  session = session_ms,
  rebalance = rebalance_ms,
  type = protocol_type,
  names = names,
  protocols = pack.pack(packed),
  instance = instance,
  profile = classic_membership.profile(ARGV[4], ARGV[5], instance),
}
if row and (g.state == classic_group.COMPLETING or g.state == classic_group.STABLE and g.leader ~= id) then
  if redis.call("HGET", g.protocols, id) == joining.protocols then
    return answer(id, g.leader, 0)
  end
end
key_types.hashes(KEYS, 2, 6)

-- Write.
if replaced then
  local leader = g.leader
  local back = classic_membership.replace(g, replaced, joining)
  local before = g.protocol
  classic_membership.update(g, back, joining)
  if g.state == classic_group.STABLE and classic_membership.choose_protocol(g) == before then
    back.awaiting, g.awaiting = false, g.awaiting - 1
    classic_group.put(g, joining.id, back)
    classic_group.restart(g, joining.id, back, now_ms)
    classic_group.save(g)
    if may_skip then
      return answer(joining.id, g.leader, g.leader == joining.id and 1 or 0)
    end
    return answer(joining.id, leader, 0)
  end
  classic_rebalance.begin(g, now_ms)
elseif id == "" and require_member_id and instance == "" then
  classic_membership.hand_out(g, joining.id, session_ms, now_ms)
  if g.state == classic_group.EMPTY then
    classic_group.look_later(g, now_ms)
  end
  classic_group.save(g)
  return {
    codes.MEMBER_ID_REQUIRED, 0, -1, "", "", "", joining.id, 0, {}, classic_group.wait_ms(g, now_ms), 0,
  }
elseif row then
  classic_membership.update(g, row, joining)
  classic_rebalance.begin(g, now_ms)
else
  classic_membership.add(g, joining, now_ms)
  classic_rebalance.begin(g, now_ms, delay_ms)
end
classic_group.save(g)
if g.state == classic_group.PREPARING then
  return {
    codes.NONE, 1, -1, "", "", "", joining.id, 0, {}, classic_group.wait_ms(g, now_ms), g.began,
  }
end
return answer(joining.id, g.leader, 0)
