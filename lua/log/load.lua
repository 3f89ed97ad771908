--- log.load  version 1  writes
--- Append entries at their own offsets to a log that is being restored.
---
--- KEYS     stream        stream  the partition's records
---          log           hash    the partition's state
---          index         zset    sparse index
---          aborted_txns  zset    "producer id:first:stable after it" -> offset of the marker
--- ARGV     topic_id      text    the topic id the caller expects, 32 hex digits
---          next          int=-1  the least offset of the next record; -1: the end of the entries
---          rest...       bytes   the number of aborted transactions, and for each its member and
---                                its score; then for each entry its first and last offset, its
---                                records, its size, its max timestamp (-1: none), the number of
---                                its fields and values, then those
--- RETURNS  error         int     a lib.codes value
---          next          int     the log end offset
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID OFFSET_OUT_OF_RANGE
--- COST     O(entries), at most 10 calls + 3 per rest
--- NOTES    The topic has no definition yet: no broker appends. OFFSET_OUT_OF_RANGE: an entry is
---          not above the end of the log.
local codes = require("lib.codes")
local clock = require("lib.clock")
local entry_id = require("lib.entry_id")
local entry_limits = require("lib.entry_limits")
local num = require("lib.num")

local stream, log, index, aborted_txns = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local topic_id, wanted, aborted = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local FIXED, OF_ENTRY, INDEX_BYTES = 3, 6, 65536

-- Check.
local state = redis.call(
  "HMGET", log, "topic_id", "mode", "bits", "next", "bytes", "records", "entries", "max_timestamp",
  "indexed_bytes", "largest_append"
)
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1 }
end
local mode, bits, next_offset = state[2], tonumber(state[3]), tonumber(state[4])
local begin = FIXED + 2 * aborted + 1
local at, ends = begin, next_offset
while at <= #ARGV do
  local first, last, fields = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 5])
  if not (first and last and fields and fields >= 2 and fields % 2 == 0
    and at + OF_ENTRY + fields - 1 <= #ARGV) then
    error("log.load: ARGV are not those of entries", 0)
  end
  entry_limits.check(fields)
  if last < ends or first > last then
    return { codes.OFFSET_OUT_OF_RANGE, next_offset }
  end
  ends, at = last + 1, at + OF_ENTRY + fields
end
redis.call("XLEN", stream)
redis.call("ZCARD", index)
redis.call("ZCARD", aborted_txns)

-- Write.
for i = FIXED + 1, begin - 1, 2 do
  redis.call("ZADD", aborted_txns, ARGV[i + 1], ARGV[i])
end
local bytes, records, entries = tonumber(state[5]), tonumber(state[6]), tonumber(state[7])
local newest, indexed, largest = tonumber(state[8]), tonumber(state[9]), tonumber(state[10])
local untimed, markers, id_of = false, false, entry_id.namer(mode, bits)
at = begin
while at <= #ARGV do
  local first, last, size = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3])
  local timestamp, fields = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  if bytes - indexed >= INDEX_BYTES or indexed < 0 then
    redis.call(
      "ZADD", index, first,
      first .. ":" .. num.text(newest) .. ":" .. num.text(bytes) .. ":" .. num.text(records)
    )
    indexed = bytes
  end
  redis.call("XADD", stream, id_of(last), unpack(ARGV, at + OF_ENTRY, at + OF_ENTRY + fields - 1))
  bytes, records, entries = bytes + size, records + tonumber(ARGV[at + 2]), entries + 1
  newest, largest = math.max(newest, timestamp), math.max(largest, size)
  -- A marker has no records, and no timestamp that counts.
  if ARGV[at + 2] == "0" then
    markers = true
  else
    untimed = untimed or timestamp < 0
  end
  at = at + OF_ENTRY + fields
end
next_offset = math.max(ends, wanted)
if mode ~= "time" and next_offset > ends then
  redis.call("XSETID", stream, entry_id.id(mode, bits, next_offset - 1))
end
redis.call(
  "HSET", log, "next", num.text(next_offset), "bytes", num.text(bytes), "records",
  num.text(records), "entries", num.text(entries), "max_timestamp", num.text(newest),
  "indexed_bytes", num.text(indexed), "largest_append", num.text(largest)
)
if markers then
  -- Readers look for markers in a log that has had a transaction.
  redis.call("HSETNX", log, "stable", -1)
end
if untimed then
  redis.call("HSET", log, "untimed_append_ms", num.text(clock.now_ms()))
elseif state[6] == "0" and records > 0 then
  -- What log.restore wrote for a log without records: these have timestamps for retention.
  redis.call("HDEL", log, "untimed_append_ms")
end
return { codes.NONE, next_offset }
