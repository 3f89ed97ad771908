--- group.leave  version 1  writes
--- Members are no longer in the group, and a rebalance of the others has begun.
---
--- KEYS     group              hash   state, generation, protocol, counters, votes
---          members            hash   member id -> timeouts and flags
---          clients            hash   member id -> client id, host, instance
---          protocols          hash   member id -> protocols and metadata
---          instances          hash   group instance id -> member id
---          assignments        hash   member id -> assignment
---          deadlines          zset   member id or phase -> moment, ms
---          consumer_members   hash   member id -> its epoch, subscription and partitions
---          target_assignment  hash   member id -> the partitions it should have
---          partition_owners   hash   partition -> since when which member has it
--- ARGV     leaver...          bytes  a member id, empty to name a static member by its instance
---          instance...        bytes  its group instance id, empty for none
--- RETURNS  error              int    a lib.codes value
---          results            list   a lib.codes value for each leaver
---          wait_ms            int    until the group's next deadline, -1 for none
---          began              int    rebalances begun by this call
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID
--- COST     O(leavers), and O(members) for the rebalance, at most 20 calls + 9 per member
--- NOTES    UNKNOWN_MEMBER_ID alone, without results: there is no such group. In the results:
---          UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID.
---          Members of the newer protocol leave by a heartbeat; this is how somebody else sends them away.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local consumer_group = require("lib.consumer_group")
local classic_group = require("lib.classic_group")
local key_types = require("lib.key_types")
local classic_rebalance = require("lib.classic_rebalance")
local classic_membership = require("lib.classic_membership")

local g = classic_group.load(KEYS)
local now_ms = clock.now_ms()

-- Check. Refusals live here.
if classic_group.overdue(g, now_ms) then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS, {}, 0, 0 }
end
if not g.exists then
  return { codes.UNKNOWN_MEMBER_ID, {}, -1, 0 }
end
key_types.hashes(KEYS, 2, 6)
key_types.hashes(KEYS, 8, 10)

-- Write.
local results, gone, changed = {}, 0, false
if g.type == "consumer" then
  local newer = consumer_group.load({ KEYS[1], KEYS[8], KEYS[9], KEYS[10], KEYS[5], KEYS[7] })
  for i = 1, #ARGV, 2 do
    results[#results + 1] = consumer_group.dismiss(newer, ARGV[i], ARGV[i + 1])
    gone = gone + (results[#results] == codes.NONE and 1 or 0)
  end
  if gone > 0 then
    consumer_group.move(newer, now_ms)
    consumer_group.save(newer, now_ms)
  end
  return { codes.NONE, results, classic_group.wait_ms(g, now_ms), newer.began }
end
for i = 1, #ARGV, 2 do
  local id, instance = ARGV[i], ARGV[i + 1]
  if id == "" and instance ~= "" then
    id = redis.call("HGET", g.instances, instance) or ""
  end
  local verdict = codes.NONE
  if classic_group.is_pending(g, id) then
    classic_membership.remove_pending(g, id)
    changed = true
  else
    verdict = classic_group.validate(g, id, instance)
    if verdict == codes.NONE then
      classic_membership.remove(g, id)
      gone = gone + 1
    end
  end
  results[#results + 1] = verdict
end
if gone > 0 then
  classic_rebalance.without(g, now_ms)
elseif changed then
  classic_rebalance.try_complete(g, now_ms)
end
if gone > 0 or changed then
  classic_group.save(g)
end
return { codes.NONE, results, classic_group.wait_ms(g, now_ms), g.began }
