--- group.delete  version 1  writes
--- A group without members is gone with its committed offsets.
---
--- KEYS     group              hash  state, generation, protocol, counters, votes
---          members            hash  member id -> timeouts and flags
---          clients            hash  member id -> client id, host, instance
---          protocols          hash  member id -> protocols and metadata
---          instances          hash  group instance id -> member id
---          assignments        hash  member id -> assignment
---          deadlines          zset  member id or phase -> moment, ms
---          offsets            hash  `korvet:<topic>:<p>` -> what lib.offset_commit says
---          txn_offsets        hash  producer id -> its newest transaction here, and commits that wait
---          consumer_members   hash  member id -> its epoch, subscription and partitions
---          target_assignment  hash  member id -> the partitions it should have
---          partition_owners   hash  partition -> since when which member has it
--- RETURNS  error              int   a lib.codes value
---          fields             list  fields of the commits it had
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS GROUP_ID_NOT_FOUND NON_EMPTY_GROUP
--- COST     O(members + commits), at most 10 calls + 1 per waiting_commit
--- NOTES    Which transactions ended here is known for a day longer, as in group.tick; commits that wait
---          for theirs are gone.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local key_types = require("lib.key_types")
local txn_offset_commit = require("lib.txn_offset_commit")

local offsets, txn_offsets = KEYS[8], KEYS[9]

local g = classic_group.load(KEYS)

-- Check. Refusals live here.
if classic_group.overdue(g, clock.now_ms()) then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS, {} }
end
if not g.exists then
  return { codes.GROUP_ID_NOT_FOUND, {} }
end
if g.state ~= classic_group.EMPTY then
  return { codes.NON_EMPTY_GROUP, {} }
end
local fields = redis.call("HKEYS", offsets)
key_types.hashes(KEYS, 9, 9)

-- Write.
redis.call("UNLINK", unpack(KEYS, 1, 8))
redis.call("UNLINK", unpack(KEYS, 10))
txn_offset_commit.leave(txn_offsets)
return { codes.NONE, fields }
