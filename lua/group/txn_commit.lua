--- group.txn_commit  version 1  writes
--- Store offsets that wait for the end of a transaction (TxnOffsetCommit).
---
--- KEYS     group             hash   state, generation, protocol, counters, votes
---          members           hash   member id -> timeouts and flags
---          clients           hash   member id -> client id, host, instance
---          protocols         hash   member id -> protocols and metadata
---          instances         hash   group instance id -> member id
---          assignments       hash   member id -> assignment
---          deadlines         zset   member id or phase -> moment, ms
---          offsets           hash   `korvet:<topic>:<p>` -> commit (lib.offset_commit)
---          txn_offsets       hash   producer id -> its newest transaction
---          txn_pending       hash   pending commits, as in lib.txn_offset_commit
---          consumer_members  hash   member id -> epoch, subscription and partitions
---          partition_owners  hash   partition -> epoch and member id of its owner
--- ARGV     member            text   the member id, empty for none
---          instance          text   group instance id, empty for none
---          generation        int    the member's generation or member epoch, negative without
---                                   membership
---          is_registered     int    1: the group is in the registry
---          producer_id       int    the transaction's producer
---          producer_epoch    int    its epoch
---          transaction       int    the transaction's number
---          field...          text   a partition's stream key
---          offset...         bytes  the offset, digits
---          epoch...          bytes  leader epoch, digits, -1 for none
---          topic...          text   topic id, 32 hex digits
---          metadata...       text   the client's metadata
--- RETURNS  error             int    a lib.codes value
---          wait_ms           int    until the group's next deadline, -1 for none
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION
---          STALE_MEMBER_EPOCH INVALID_PRODUCER_EPOCH INVALID_TXN_STATE REGISTER_FIRST
--- FULL     always: one pending commit per partition and producer
--- COST     O(partitions), at most 40 calls + 2 per field
--- NOTES    Older versions of the request have no member: membership is not checked then.
---          GROUP_ID_NOT_FOUND: the request has a generation and the group does not exist, or it is
---          a share group. INVALID_TXN_STATE: the transaction, or a later one, has ended in this
---          group. A pending commit is never older than the committed one, even if the clock was
---          set back: group.txn_complete compares their times.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local partition_owners = require("lib.partition_owners")
local deadlines = require("lib.deadlines")
local key_types = require("lib.key_types")
local num = require("lib.num")
local offset_commit = require("lib.offset_commit")
local txn_offset_commit = require("lib.txn_offset_commit")

local offsets, txn_offsets, txn_pending = KEYS[8], KEYS[9], KEYS[10]
local members, owners = KEYS[11], KEYS[12]
local id, instance, generation = ARGV[1], ARGV[2], tonumber(ARGV[3])
local is_registered, producer_id = ARGV[4] == "1", ARGV[5]
local epoch, number = tonumber(ARGV[6]), tonumber(ARGV[7])
local ROWS = 8

local g = classic_group.load(KEYS)
local is_consumer = g.type == "consumer" or g.type == "streams"
local topology_of = g.type == "streams" and g.group
local now_ms = clock.now_ms()

-- Check.
if deadlines.passed(g.deadlines, now_ms) then
  return { codes.TICK_FIRST, 0 }
end
if g.type == "share" or not g.exists and generation >= 0 then
  return { codes.GROUP_ID_NOT_FOUND, -1 }
end
local has_member = generation >= 0 or id ~= "" or instance ~= ""
if has_member and not (generation < 0 and g.state == classic_group.EMPTY) then
  local verdict
  if is_consumer then
    verdict = partition_owners.check_commit(
      members, owners, id, generation, ARGV, ROWS, topology_of
    )
  else
    verdict = classic_group.check_member(g, id, instance)
  end
  if verdict ~= codes.NONE then
    return { verdict, -1 }
  end
  if not is_consumer and generation ~= g.generation then
    return { codes.ILLEGAL_GENERATION, -1 }
  end
end
local last = txn_offset_commit.last(txn_offsets, producer_id)
if last and epoch < last.epoch then
  return { codes.INVALID_PRODUCER_EPOCH, -1 }
end
if last and (number < last.number or (number == last.number and not last.open)) then
  return { codes.INVALID_TXN_STATE, -1 }
end
if not g.exists and not is_registered then
  return { codes.REGISTER_FIRST, -1 }
end
key_types.hashes(KEYS, 8, 8)
key_types.hashes(KEYS, 10, 10)

-- Write.
redis.call("PERSIST", txn_offsets)
if not last then
  txn_offset_commit.prune(txn_offsets, now_ms)
end
local flat = {}
for i = ROWS, #ARGV, 5 do
  local committed_ms = offset_commit.times(redis.call("HGET", offsets, ARGV[i]) or "")
  local time_text = num.text(math.max(now_ms, committed_ms))
  flat[#flat + 1] = ARGV[i]
  flat[#flat + 1] =
    offset_commit.format(ARGV[i + 1], ARGV[i + 2], time_text, "-1", ARGV[i + 3], ARGV[i + 4])
end
local pending = txn_offset_commit.add(txn_pending, producer_id, last and last.pending or 0, flat)
txn_offset_commit.put_last(txn_offsets, producer_id, number, epoch, true, now_ms, pending)
if g.state == classic_group.EMPTY then
  deadlines.check_offsets(g.deadlines, now_ms)
  if not g.exists then
    g.since = now_ms
    classic_group.save(g)
  end
elseif has_member and not is_consumer then
  local row = classic_group.get_member(g, id)
  if not row.awaiting then
    classic_group.renew_session(g, id, row, now_ms)
  end
end
return { codes.NONE, deadlines.wait_ms(g.deadlines, now_ms) }
