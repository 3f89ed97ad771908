--- log.adopt  version 1  writes
--- Count the entries that another program has added to a log, or removed from it.
---
--- KEYS     stream    stream  the partition's records
---          log       hash    the partition's state
---          index     zset    sparse index
--- ARGV     topic_id  text    the topic id the caller expects, 32 hex digits
--- RETURNS  error     int     a lib.codes value
---          counted   int     entries counted by this call, those of producers among them too
---          more      int     1: call again, there is more to count
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: index rows, and retention removes what is counted
--- COST     O(entries counted), up to 1,500 or 8 MB, at most 260 calls
---          + 4 per new_ms
--- NOTES    Bytes are those of an entry's names and values. The time of an entry is that of its id,
---          or its field `timestamp` if that is later; in dense mode, the time of this call. No
---          time is in the future. If another program removed the oldest entries, the index steps
---          without entries leave the counters.
local codes = require("lib.codes")
local clock = require("lib.clock")
local foreign_entries = require("lib.foreign_entries")
local numbering = require("lib.numbering")

local stream, log, index = KEYS[1], KEYS[2], KEYS[3]
local topic_id = ARGV[1]

-- Check.
local owner = redis.call("HGET", log, "topic_id")
if owner ~= topic_id then
  return { owner and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, 0 }
end
redis.call("ZCARD", index)

-- Write.
local _, _, is_numbered = numbering.settle(numbering.open(stream, log))
if not is_numbered then
  return { codes.NONE, 0, 1 }
end
local state = foreign_entries.open(stream, log)
local counted, more = foreign_entries.count(state, index, clock.now_ms())
if not more then
  foreign_entries.forget_removed(state, index)
end
return { codes.NONE, counted, more and 1 or 0 }
