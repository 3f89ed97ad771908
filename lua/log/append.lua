--- log.append  version 3  writes
--- One producer batch stands in the log at consecutive offsets, or nothing has changed.
---
--- KEYS     stream          stream  the partition's records
---          log             hash    the partition's state
---          index           zset    sparse index: offset -> max timestamp, bytes and records before it
---          producers       hash    producer id -> epoch, last five batches, transaction
---          open            zset    producer id -> end of the log before its open transaction
--- ARGV     topic_id        bytes   the topic the caller believes in, 32 hex digits
---          count           int     records: last offset delta + 1, and so the offsets the batch takes,
---                                  but for bytes mode
---          size            int     bytes the batch counts for
---          max_timestamp   int     ms, the newest record's
---          producer_id     int     -1 without idempotence
---          producer_epoch  int     -1 without idempotence
---          base_sequence   int     -1 without idempotence
---          transaction     int     -1 in none; 0 in the one this partition was told of (log.begin);
---                                  else the number of the producer's transaction, begun if new here
---          stamp           int     1: LogAppendTime, the entry says when it was appended
---          fields...       bytes   batch layout: the entry's fields and values; record layout: for
---                                  each record the number of its fields and values, then those, or,
---                                  where all records have the same fields, minus their number, the
---                                  fields, then each record's values; bytes mode: for each entry
---                                  the offsets it takes, the number of its fields and values, then
---                                  those
--- RETURNS  error           int     a lib.codes value
---          base            int     the first offset, -1 when refused
---          previous        int     the end of the log before it, -1 when nothing was appended
---          start           int     log start offset
---          append_time     int     ms of Redis's clock, -1 without LogAppendTime
---          stored          int     1 appended now, 0 a duplicate of what was stored before
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID INVALID_PRODUCER_EPOCH DUPLICATE_SEQUENCE_NUMBER
---          OUT_OF_ORDER_SEQUENCE_NUMBER INVALID_TXN_STATE
--- COST     O(records), at most 12 calls + 1 per fields
--- NOTES    A native XADD may stand behind `next`; then the first XADD fails with nothing written,
---          and the batch goes behind the stream's last id.
---          In batch layout and in bytes mode an entry's id is that of the last offset it takes.
---          Without transactions `open` is never touched, and `stable` of the state is absent: the end
---          of the log before the oldest open transaction, -1 when none is open. In time mode offsets
---          jump: a reader that has all before the transaction stands there, and not at its first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local entry = require("lib.entry")
local num = require("lib.num")

local stream, log, index, producers, open = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local topic_id, count, size = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local max_timestamp = tonumber(ARGV[4])
local producer_id, epoch, sequence = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local transaction, stamp = tonumber(ARGV[8]), ARGV[9] == "1"
local FIELDS = 10
local INDEX_BYTES = 65536

-- Check. Refusals live here.
local state = redis.call(
  "HMGET", log, "topic_id", "format", "mode", "bits", "next", "start", "bytes", "records",
  "max_timestamp", "indexed", "largest", "entries"
)
if not state[1] then
  return { codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1, -1, 0 }
end
if state[1] ~= topic_id then
  return { codes.UNKNOWN_TOPIC_ID, -1, -1, -1, -1, 0 }
end
local format, mode, bits = state[2], state[3], tonumber(state[4])
local next_offset, start = tonumber(state[5]), tonumber(state[6])
local bytes, records = tonumber(state[7]), tonumber(state[8])
local newest, indexed, largest = tonumber(state[9]), tonumber(state[10]), tonumber(state[11])
local entries = tonumber(state[12])

local remember
if sequence >= 0 then
  local producer = require("lib.producer")
  local known = producer.read(redis.call("HGET", producers, producer_id))
  local last_sequence = producer.last_sequence(sequence, count)
  local stored_at = producer.duplicate_of(known, epoch, sequence, last_sequence)
  if stored_at then
    return { codes.NONE, stored_at, -1, start, -1, 0 }
  end
  local verdict = producer.judge(known, epoch, sequence)
  if verdict == "fenced" then
    return { codes.INVALID_PRODUCER_EPOCH, -1, -1, start, -1, 0 }
  elseif verdict == "old" then
    return { codes.DUPLICATE_SEQUENCE_NUMBER, -1, -1, start, -1, 0 }
  elseif verdict == "gap" then
    return { codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1, start, -1, 0 }
  end
  if not producer.may_append(known, epoch, transaction) then
    return { codes.INVALID_TXN_STATE, -1, -1, start, -1, 0 }
  end
  remember = function(now_ms, base)
    local round, first = producer.transaction_after(known, transaction, base)
    redis.call(
      "HSET", producers, producer_id,
      producer.remember(known, epoch, now_ms, sequence, last_sequence, base, round, first)
    )
    if first == base then
      redis.call("ZADD", open, next_offset, producer_id)
      redis.call("HSET", log, "stable", redis.call("ZRANGE", open, 0, 0, "WITHSCORES")[2])
    end
  end
end

local now_ms = clock.now_ms()
local base = next_offset
if mode == "time" then
  base = math.max(next_offset, now_ms * 2 ^ bits)
end
if stamp then
  max_timestamp = now_ms
end

-- Entries go in with XADD at explicit ids; `at` is the first field of the entry in ARGV.
local id_of = entry.namer(mode, bits)
local function add(call, offset, at, last)
  local id = id_of(offset)
  if stamp then
    return call("XADD", stream, id, "append.time", now_ms, unpack(ARGV, at, last))
  end
  return call("XADD", stream, id, unpack(ARGV, at, last))
end

local per_entry = format == "batch" and count or 1
local at, last = FIELDS, #ARGV
local width, added_entries, widest = count, count / per_entry, size
local plan, shared = {}, 0
if mode == "bytes" then
  local spans = require("lib.spans")
  plan, width, widest = spans.read(ARGV, FIELDS)
  per_entry, at, last = plan[1][1] + 1, plan[1][2], plan[1][3]
  added_entries = #plan
elseif format == "record" then
  local fields = tonumber(ARGV[FIELDS])
  at, last = FIELDS + 1, FIELDS + fields
  if fields < 0 then
    shared, at = -fields, FIELDS + 1 - fields
    local uniform = require("lib.uniform")
    add = uniform.adder(stream, id_of, ARGV, FIELDS + 1, shared, stamp and now_ms)
  end
end

-- Write.
local added = add(redis.pcall, base + per_entry - 1, at, last)
if type(added) == "table" and added.err then
  local behind = require("lib.behind")
  next_offset = behind.last(stream, mode, bits)
  base = math.max(base, next_offset)
  add(redis.call, base + per_entry - 1, at, last)
end
for i = 2, #plan do
  add(redis.call, base + plan[i][1], plan[i][2], plan[i][3])
end
if shared > 0 then
  for i = 1, count - 1 do
    add(redis.call, base + i, at + i * shared)
  end
elseif format == "record" and mode ~= "bytes" then
  for i = 1, count - 1 do
    at = last + 2
    last = last + 1 + tonumber(ARGV[last + 1])
    add(redis.call, base + i, at, last)
  end
end

if bytes - indexed >= INDEX_BYTES or indexed < 0 then
  redis.call(
    "ZADD", index, base,
    num.text(base) .. ":" .. num.text(newest) .. ":" .. num.text(bytes) .. ":" .. num.text(records)
  )
  indexed = bytes
end
redis.call(
  "HSET", log, "next", base + width, "bytes", bytes + size, "records", records + count,
  "max_timestamp", math.max(newest, max_timestamp), "indexed", indexed,
  "largest", math.max(largest, widest), "entries", entries + added_entries
)
if remember then
  remember(now_ms, base)
end
redis.call("PUBLISH", stream, base + width)
return { codes.NONE, base, next_offset, start, stamp and now_ms or -1, 1 }
