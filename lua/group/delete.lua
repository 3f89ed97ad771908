--- group.delete  version 1  writes
--- Delete a group without members, with its committed offsets.
---
--- KEYS     group              hash  state, generation, protocol, counters, votes
---          members            hash  member id -> timeouts and flags
---          clients            hash  member id -> client id, host, instance
---          protocols          hash  member id -> protocols and metadata
---          instances          hash  group instance id -> member id
---          assignments        hash  member id -> assignment
---          deadlines          zset  member id or phase -> moment, ms
---          offsets            hash  `korvet:<topic>:<p>` -> commit (lib.offset_commit)
---          txn_offsets        hash  producer id -> its newest transaction
---          txn_pending        hash  pending commits, as in lib.txn_offset_commit
---          consumer_members   hash  member id -> epoch, subscription and partitions
---          target_assignment  hash  member id -> the partitions it should own
---          partition_owners   hash  partition -> epoch and member id of its owner
---          share_topics       hash  topic -> topic id
--- ARGV     commits            int   committed offsets of which the caller has read the fields
--- RETURNS  error              int   a lib.codes value
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND NON_EMPTY_GROUP GROUP_CHANGED
--- FULL     always: the group is removed
--- COST     O(1), at most 12 calls
--- NOTES    GROUP_CHANGED: the group has another number of commits, read them again. Pending
---          commits of transactions are deleted; the transactions' numbers are kept for a day, as
---          in group.tick.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local deadlines = require("lib.deadlines")
local key_types = require("lib.key_types")
local txn_offset_commit = require("lib.txn_offset_commit")

local offsets, txn_offsets = KEYS[8], KEYS[9]

local g = classic_group.load(KEYS)

-- Check.
if deadlines.passed(g.deadlines, clock.now_ms()) then
  return { codes.TICK_FIRST }
end
if not g.exists then
  return { codes.GROUP_ID_NOT_FOUND }
end
if g.state ~= classic_group.EMPTY then
  return { codes.NON_EMPTY_GROUP }
end
if redis.call("HLEN", offsets) ~= tonumber(ARGV[1]) then
  return { codes.GROUP_CHANGED }
end
key_types.hashes(KEYS, 9, 10)

-- Write.
redis.call("UNLINK", unpack(KEYS, 1, 8))
redis.call("UNLINK", unpack(KEYS, 11))
txn_offset_commit.delete_group(txn_offsets, KEYS[10])
return { codes.NONE }
