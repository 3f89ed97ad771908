--- log.number_entries  version 1  writes
--- Give offsets to the entries that other programs have added to a log.
---
--- KEYS     stream      stream  the partition's records
---          log         hash    the partition's state
--- ARGV     topic_id    text    the topic id the caller expects, 32 hex digits
--- RETURNS  error       int     a lib.codes value
---          next        int     the log end offset, -1 on an error
---          more        int     1: call again, there are more to number
---          unnumbered  int     entries that have none, since the log was created
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: readers need the offsets, some bytes per thousand entries
--- COST     O(log entries) for each of at most 2,000 new_ms, the milliseconds of the new entries'
---          ids, at most 60 calls + 4 per new_ms
--- NOTES    lib.numbering has the rules. Appends, retention and log.list_offsets number entries
---          too: this script is for readers. In layout `batch` there is nothing to number.
local codes = require("lib.codes")
local numbering = require("lib.numbering")

local stream, log, topic_id = KEYS[1], KEYS[2], ARGV[1]

-- Check.
local owner = redis.call("HGET", log, "topic_id")
if owner ~= topic_id then
  return { owner and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, 0 }
end

-- Write.
local next_offset, _, is_done = numbering.settle(numbering.open(stream, log))
local unnumbered = tonumber(redis.call("HGET", log, "unnumbered") or "0")
return { codes.NONE, next_offset, is_done and 0 or 1, unnumbered }
