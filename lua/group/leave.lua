--- group.leave  version 1  writes
--- Handle a LeaveGroup: remove members, and rebalance the group.
---
--- KEYS     group              hash  state, generation, protocol, counters, votes
---          members            hash  member id -> timeouts and flags
---          clients            hash  member id -> client id, host, instance
---          protocols          hash  member id -> protocols and metadata
---          instances          hash  group instance id -> member id
---          assignments        hash  member id -> assignment
---          deadlines          zset  member id or phase -> moment, ms
---          consumer_members   hash  member id -> epoch, subscription and partitions
---          target_assignment  hash  member id -> the partitions it should own
---          partition_owners   hash  partition -> epoch and member id of its owner
--- ARGV     leaver...          text  a member id, empty to name a static member by its instance
---          instance...        text  its group instance id, empty for none
--- RETURNS  error              int   a lib.codes value
---          results            ints  a lib.codes value per leaver
---          wait_ms            int   until the group's next deadline, -1 for none
---          rebalances         int   rebalances that this call began
--- REFUSES  TICK_FIRST UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID
--- FULL     always: members are removed
--- COST     O(leavers), and O(members) for the rebalance, at most 21 calls + 9 per member
--- NOTES    UNKNOWN_MEMBER_ID without results: the group does not exist. In the results:
---          UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID.
---          KIP-848 members leave by a heartbeat; this script removes them for an administrator.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local classic_membership = require("lib.classic_membership")
local classic_rebalance = require("lib.classic_rebalance")
local modern_group = require("lib.modern_group")
local deadlines = require("lib.deadlines")
local key_types = require("lib.key_types")

local g = classic_group.load(KEYS)
local now_ms = clock.now_ms()

-- Check.
if deadlines.passed(g.deadlines, now_ms) then
  return { codes.TICK_FIRST, {}, 0, 0 }
end
if not g.exists then
  return { codes.UNKNOWN_MEMBER_ID, {}, -1, 0 }
end
key_types.hashes(KEYS, 2, 6)
key_types.hashes(KEYS, 8, 10)

-- Write.
local results, removed, removed_pending = {}, 0, false
if g.type == "consumer" or g.type == "streams" then
  local keys = { KEYS[1], KEYS[8], KEYS[9], KEYS[10], KEYS[5], KEYS[7] }
  local modern = modern_group.load(keys, g.type)
  for i = 1, #ARGV, 2 do
    results[#results + 1] = modern_group.evict_member(modern, ARGV[i], ARGV[i + 1])
    removed = removed + (results[#results] == codes.NONE and 1 or 0)
  end
  if removed > 0 then
    modern_group.bump_epoch(modern, now_ms)
    modern_group.save(modern, now_ms)
  end
  return { codes.NONE, results, deadlines.wait_ms(g.deadlines, now_ms), modern.rebalances }
end
for i = 1, #ARGV, 2 do
  local id, instance = ARGV[i], ARGV[i + 1]
  if id == "" and instance ~= "" then
    id = redis.call("HGET", g.instances, instance) or ""
  end
  local verdict = codes.NONE
  if classic_group.is_pending(g, id) then
    classic_membership.remove_pending(g, id)
    removed_pending = true
  else
    verdict = classic_group.check_member(g, id, instance)
    if verdict == codes.NONE then
      classic_membership.remove_member(g, id)
      removed = removed + 1
    end
  end
  results[#results + 1] = verdict
end
if removed > 0 then
  classic_rebalance.members_removed(g, now_ms)
elseif removed_pending then
  classic_rebalance.try_complete_join(g, now_ms)
end
if removed > 0 or removed_pending then
  classic_group.save(g)
end
return { codes.NONE, results, deadlines.wait_ms(g.deadlines, now_ms), g.rebalances }
