--- log.list_offsets  version 1  writes
--- Return the start and end of a partition, foreign entries included.
---
--- KEYS     stream       stream  the partition's records
---          log          hash    the partition's state
--- ARGV     topic_id     text    the topic id the caller expects, 32 hex digits; empty: any
--- RETURNS  error        int     a lib.codes value
---          start        int     the stored log start offset
---          first        int     the first record's offset, the end if there is none
---          next         int     the end: last record + 1
---          epoch        int     leader epoch
---          epochs       bytes   a row for each leader epoch above 0, oldest first, with a space in
---                               between: epoch, first offset, log end before it, end of the
---                               records known to be lost, joined by colons
---          bytes        int     bytes appended and not trimmed
---          records      int     records in the log, foreign entries included
---          newest       int     ms, the max timestamp since the log was empty, -1 for none
---          stable       int     last stable offset: start of the oldest open transaction, or the
---                               end
---          coming       int     in time mode: the least offset of a later append; else the end
---          local_first  int     the first record in Redis, the end if there is none
---          tiered       int     the offset up to which the log is copied to segments, -1: not at
---                               all
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     is_due: readers need the offsets, some bytes per thousand entries
--- COST     O(1), at most 12 calls + 4 per new_ms
--- NOTES    It numbers foreign entries first: new_ms are the milliseconds of their ids. It writes
---          nothing else. The entry it reads never leaves Redis. A reader between the end and
---          `coming` has read records that a failover lost, and misses none if it continues there.
---          `records` is exact in layout record, if no transaction has ended in the log. Otherwise
---          it may include records trimmed since the last index row, and with foreign entries be
---          too low.
local clock = require("lib.clock")
local codes = require("lib.codes")
local fields = require("lib.fields")
local numbering = require("lib.numbering")

local stream, log = KEYS[1], KEYS[2]
local topic_id = ARGV[1]

local state = redis.call(
  "HMGET", log, "topic_id", "format", "mode", "bits", "next", "start", "epoch", "bytes", "records",
  "max_timestamp", "start_bytes", "start_records", "stable", "entries", "local_start", "tiered",
  "epochs"
)
if not state[1] or topic_id ~= "" and state[1] ~= topic_id then
  local refusal = state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION
  return { refusal, -1, -1, -1, -1, "", 0, 0, -1, -1, -1, -1, -1 }
end
local format, mode, bits, start = state[2], state[3], tonumber(state[4]), tonumber(state[6])
local numbered = numbering.open(stream, log)
local is_due = numbered.is_due

-- Write.
local next_offset, map = numbering.settle(numbered)
local head = redis.call("XRANGE", stream, "-", "+", "COUNT", 1)[1]
local first = next_offset
if head then
  -- Below an entry without an offset there is none with one.
  first = map:offset(head[1]) or start
  if format == "batch" then
    -- A foreign entry may have any count.
    local count = tonumber(fields.get(head[2], "count") or 1) or 1
    first = math.min(first, first - count + 1)
  end
end
local coming = next_offset
if mode == "time" then
  coming = math.max(next_offset, clock.now_ms() * 2 ^ bits)
end
local records = tonumber(state[9]) - tonumber(state[12])
if format == "record" and mode ~= "bytes" then
  -- Transaction markers are entries, but no records.
  local markers = math.max(0, tonumber(state[14] or "0") - tonumber(state[9]))
  local others = redis.call("XLEN", stream) - markers
  records = markers == 0 and others or math.max(records, others)
end
local stable = tonumber(state[13] or "-1")
return {
  codes.NONE, start, state[15] and start or math.max(start, first), next_offset, tonumber(state[7]),
  state[17] or "",
  tonumber(state[8]) - tonumber(state[11]), records,
  tonumber(state[10]), stable < 0 and next_offset or math.max(start, stable),
  coming, math.max(start, first), tonumber(state[16] or "-1"),
}
