--- log.restore  version 1  writes
--- Create a partition's log whose records are in segments, in place of a log that was lost.
---
--- KEYS     log         hash    the partition's state
---          stream      stream  the partition's records
---          segments    zset    manifest of segments by first offset
--- ARGV     topic_id    text    32 hex digits
---          format      text    record or batch
---          mode        text    time, dense or bytes; bytes needs format batch
---          bits        int     sequence bits of mode time
---          dedupe      text=   for how many ms ids count, and how many: "ms:ids"; empty: none
---          table       int=0   1: it has a table of each key's newest value; 2: and offset
---          epoch       int     leader epoch
---          start       int     log start offset
---          next        int     the least offset of the next record
---          first...    int     the first offset a segment covers
---          last...     int     the last offset it covers
---          records...  int     its records
---          size...     int     bytes of the object
---          row...      text    the end of its row: bytes of the footer, max timestamp and id
--- RETURNS  error       int     a lib.codes value
---          restored    int     the segments of the log
--- REFUSES  TOPIC_ALREADY_EXISTS
--- COST     O(segments), at most 13 calls + 3 per first
--- NOTES    Segments are in order of their offsets. Redis has no record of the log. A log without a
---          recent append is not younger than this call for retention: its segments are removed by
---          their own timestamps. Without segments, log.load adds the records.
local codes = require("lib.codes")
local clock = require("lib.clock")
local entry_id = require("lib.entry_id")
local foreign_entries = require("lib.foreign_entries")
local log_create = require("lib.log_create")
local manifest = require("lib.segments")
local num = require("lib.num")

local log, stream, segments = KEYS[1], KEYS[2], KEYS[3]
local topic_id, format, mode, bits = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local dedupe, has_table, epoch = ARGV[5], ARGV[6], ARGV[7]
local start, next_offset = tonumber(ARGV[8]), tonumber(ARGV[9])
local FIRST, ROW = 10, 5

-- Check.
if redis.call("EXISTS", log, segments) > 0 then
  return { codes.TOPIC_ALREADY_EXISTS, 0 }
end
log_create.check(stream, log, mode)
if redis.call("XLEN", stream) > 0 then
  return { codes.TOPIC_ALREADY_EXISTS, 0 }
end
local now_ms = clock.now_ms()

-- Write.
log_create.open(stream, log, topic_id, format, mode, bits, dedupe, has_table, "0")
local records, bytes, data_bytes, newest, tiered, count = 0, 0, 0, -1, -1, 0
for i = FIRST, #ARGV, ROW do
  local held, size, rest = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), ARGV[i + 4]
  local last = tonumber(ARGV[i + 1])
  local footer, timestamp = manifest.tail(rest)
  local newest_of = manifest.newest_of(segments, count, count, timestamp)
  redis.call(
    "ZADD", segments, ARGV[i],
    manifest.member(tonumber(ARGV[i]), last, records, held, bytes, size, rest, newest_of)
  )
  records, bytes, data_bytes = records + held, bytes + size, data_bytes + size - footer
  newest, tiered = math.max(newest, timestamp), last + 1
  count = count + 1
end
redis.call(
  "HSET", log, "epoch", epoch, "start", num.text(start), "next", num.text(next_offset),
  "records", num.text(records), "entries", num.text(records), "start_records", num.text(records),
  "bytes", num.text(data_bytes), "start_bytes", num.text(data_bytes),
  "max_timestamp", num.text(newest), "untimed_append_ms", num.text(now_ms)
)
if count > 0 then
  redis.call(
    "HSET", log, "tiered", num.text(tiered), "local_start", num.text(tiered),
    "tiered_records", num.text(records), "tiered_bytes", num.text(bytes),
    "counted", foreign_entries.text({
      id = "0-0", added = 0, entries = records, bytes = data_bytes, records = records,
      offset = next_offset, newest = newest,
    })
  )
end
if mode ~= "time" and next_offset > 0 then
  redis.call("XSETID", stream, entry_id.id(mode, tonumber(bits), next_offset - 1))
end
return { codes.NONE, count }
