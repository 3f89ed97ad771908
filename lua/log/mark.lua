--- log.mark  version 2  writes
--- A producer's transaction is over in this partition: its marker stands in the log, once.
---
--- KEYS     stream          stream  the partition's records
---          log             hash    the partition's state
---          producers       hash    producer id -> epoch, last five batches, transaction
---          open            zset    producer id -> end of the log before its open transaction
---          aborted         zset    "producer id:first:stable after it" -> offset of the marker
--- ARGV     topic_id        bytes   the topic the caller believes in, 32 hex digits
---          producer_id     int     whose transaction it is
---          producer_epoch  int     the epoch its next batches need at least
---          transaction     int     its number
---          committed       int     1: its records count; 0: they never do
---          size            int     bytes the marker counts for
---          fields...       bytes   the marker's entry, fields and values
--- RETURNS  error           int     a lib.codes value
---          offset          int     where the marker stands, -1 when there was nothing to end
---          stable          int     the last stable offset after it, -1 when no transaction is open
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(log open transactions), at most 14 calls
--- NOTES    Called again for the same transaction, or for one before it, nothing changes. A
---          transaction without records here leaves no marker, but is remembered as over.
local codes = require("lib.codes")
local clock = require("lib.clock")
local entry = require("lib.entry")
local num = require("lib.num")
local producer = require("lib.producer")

local stream, log, producers, open, aborted = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local topic_id, producer_id, epoch = ARGV[1], ARGV[2], tonumber(ARGV[3])
local transaction, committed, size = tonumber(ARGV[4]), ARGV[5] == "1", tonumber(ARGV[6])
local FIELDS = 7

-- Check. Refusals live here.
local state = redis.call(
  "HMGET", log, "topic_id", "mode", "bits", "next", "start", "bytes", "entries", "stable"
)
if not state[1] then
  return { codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1 }
end
if state[1] ~= topic_id then
  return { codes.UNKNOWN_TOPIC_ID, -1, -1 }
end
local mode, bits, stable = state[2], tonumber(state[3]), tonumber(state[8] or "-1")
local known = producer.read(redis.call("HGET", producers, producer_id))

-- Write.
local last_round = known and known.round or 0
if last_round > transaction or (last_round == transaction and not producer.is_open(known)) then
  return { codes.NONE, -1, stable }
end
local now_ms = clock.now_ms()
redis.call(
  "HSET", producers, producer_id,
  producer.turn(known, math.max(epoch, known and known.epoch or 0), now_ms, transaction, producer.ENDED)
)
if not producer.is_open(known) or known.first == producer.JOINED then
  return { codes.NONE, -1, stable }
end

local at = tonumber(state[4])
if mode == "time" then
  at = math.max(at, now_ms * 2 ^ bits)
end
local added = redis.pcall(
  "XADD", stream, entry.id(mode, bits, at), unpack(ARGV, FIELDS)
)
if type(added) == "table" and added.err then
  local ends = require("lib.ends")
  at = math.max(at, ends.behind_all(mode, bits, stream))
  redis.call("XADD", stream, entry.id(mode, bits, at), unpack(ARGV, FIELDS))
end
redis.call("ZREM", open, producer_id)
local oldest = redis.call("ZRANGE", open, 0, 0, "WITHSCORES")
stable = tonumber(oldest[2] or "-1")
if not committed then
  redis.call("ZREMRANGEBYSCORE", aborted, "-inf", "(" .. state[5])
  redis.call(
    "ZADD", aborted, at,
    producer_id .. ":" .. num.text(known.first) .. ":" .. num.text(stable < 0 and at + 1 or stable)
  )
end
redis.call(
  "HSET", log, "next", at + 1, "bytes", tonumber(state[6]) + size,
  "entries", tonumber(state[7]) + 1, "stable", stable
)
redis.call("PUBLISH", stream, at + 1)
return { codes.NONE, at, stable }
