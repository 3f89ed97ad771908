--- group.txn_commit  version 1  writes
--- Offsets wait in the group for the end of a transaction; until then nobody sees them.
---
--- KEYS     group             hash   state, generation, protocol, counters, votes
---          members           hash   member id -> timeouts and flags
---          clients           hash   member id -> client id, host, instance
---          protocols         hash   member id -> protocols and metadata
---          instances         hash   group instance id -> member id
---          assignments       hash   member id -> assignment
---          deadlines         zset   member id or phase -> moment, ms
---          offsets           hash   `korvet:<topic>:<p>` -> what lib.offset_commit says
---          txn_offsets       hash   producer id -> its newest transaction here; producer id, a space and
---                                   a partition's stream key -> what lib.offset_commit says
---          consumer_members  hash   member id -> its epoch, subscription and partitions
---          partition_owners  hash   partition -> since when which member has it
--- ARGV     member            bytes  the member id, empty for none
---          instance          bytes  group instance id, empty for none
---          generation        int    the generation or epoch the member believes in, negative without
---                                   membership
---          is_registered     int    1: the group stands in the registry
---          producer_id       int    whose transaction it is
---          producer_epoch    int    its epoch
---          transaction       int    its number
---          field...          bytes  a partition's stream key
---          offset...         bytes  the offset, digits
---          epoch...          bytes  leader epoch, digits, -1 for none
---          topic...          bytes  topic id, 32 hex digits
---          metadata...       bytes  the client's own words
--- RETURNS  error             int    a lib.codes value
---          wait_ms           int    until the group's next deadline, -1 for none
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID
---          ILLEGAL_GENERATION STALE_MEMBER_EPOCH INVALID_PRODUCER_EPOCH INVALID_TXN_STATE COORDINATOR_NOT_AVAILABLE
--- COST     O(partitions), at most 36 calls + 2 per field
--- NOTES    The old versions of the request name no member: then no membership is asked for.
---          GROUP_ID_NOT_FOUND: a generation was named and there is no group.
---          INVALID_TXN_STATE: the transaction, or a later one, has ended here.
---          What waits is not older than what is committed, wherever the clock stood then: group.txn_complete
---          tells by the times which of the two came last.
---          COORDINATOR_LOAD_IN_PROGRESS and COORDINATOR_NOT_AVAILABLE: as in group.commit.
local codes = require("lib.codes")
local clock = require("lib.clock")
local offset_commit = require("lib.offset_commit")
local consumer_group = require("lib.consumer_group")
local classic_group = require("lib.classic_group")
local key_types = require("lib.key_types")
local num = require("lib.num")
local txn_offset_commit = require("lib.txn_offset_commit")

local offsets, txn_offsets, consumer_members, partition_owners = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local id, instance, generation = ARGV[1], ARGV[2], tonumber(ARGV[3])
local is_registered, producer_id = ARGV[4] == "1", ARGV[5]
local epoch, round = tonumber(ARGV[6]), tonumber(ARGV[7])
local ROWS = 8

local g = classic_group.load(KEYS)
local newer = g.type == "consumer"
local now_ms = clock.now_ms()

-- Check. Refusals live here.
if classic_group.overdue(g, now_ms) then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS, 0 }
end
if not g.exists and generation >= 0 then
  return { codes.GROUP_ID_NOT_FOUND, -1 }
end
local named = generation >= 0 or id ~= "" or instance ~= ""
if named and not (generation < 0 and g.state == classic_group.EMPTY) then
  local verdict
  if newer then
    verdict = consumer_group.check_commit(consumer_members, partition_owners, id, generation, ARGV, ROWS)
  else
    verdict = classic_group.validate(g, id, instance)
  end
  if verdict ~= codes.NONE then
    return { verdict, -1 }
  end
  if not newer and generation ~= g.generation then
    return { codes.ILLEGAL_GENERATION, -1 }
  end
end
local last = txn_offset_commit.last(txn_offsets, producer_id)
if last and epoch < last.epoch then
  return { codes.INVALID_PRODUCER_EPOCH, -1 }
end
if last and (round < last.round or (round == last.round and not last.open)) then
  return { codes.INVALID_TXN_STATE, -1 }
end
if not g.exists and not is_registered then
  return { codes.COORDINATOR_NOT_AVAILABLE, -1 }
end
key_types.hashes(KEYS, 8, 8)

-- Write.
txn_offset_commit.turn(txn_offsets, producer_id, round, epoch, true, now_ms)
redis.call("PERSIST", txn_offsets)
if not last then
  txn_offset_commit.prune(txn_offsets, now_ms)
end
for i = ROWS, #ARGV, 5 do
  local committed_ms = offset_commit.times(redis.call("HGET", offsets, ARGV[i]) or "")
  local time_text = num.text(math.max(now_ms, committed_ms))
  redis.call(
    "HSET", txn_offsets, producer_id .. " " .. ARGV[i],
    offset_commit.text(ARGV[i + 1], ARGV[i + 2], time_text, "-1", ARGV[i + 3], ARGV[i + 4])
  )
end
if g.state == classic_group.EMPTY then
  classic_group.look_later(g, now_ms)
  if not g.exists then
    g.since = now_ms
    classic_group.save(g)
  end
elseif named and not newer then
  local row = classic_group.row(g, id)
  if not row.awaiting then
    classic_group.restart(g, id, row, now_ms)
  end
end
return { codes.NONE, classic_group.wait_ms(g, now_ms) }
