--- log.rebuild  version 1  writes
--- Copy a log whose ids are exhausted, and replace it with the copy, which has ids left.
---
--- KEYS     stream        stream  the partition's records
---          log           hash    the partition's state
---          compacted     stream  the copy, renamed to `stream` at the end
--- ARGV     topic_id      text    the topic id the caller expects, 32 hex digits
---          token         text    the pass
---          length        int     entries that the copy must have; 0 starts the pass
---          at_most       int     max entries to copy in this call, fewer if that many average more
---                                than 128 KiB
--- RETURNS  error         int     a lib.codes value
---          more          int     1: entries are left to copy, call again
---          length        int     entries that the copy then has
---          oversized_id  bytes   as log.clean_commit returns it
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID NOT_COORDINATOR
--- COST     O(entries copied + groups), at most 533 calls
--- NOTES    A log whose ids are not exhausted stays as it is. NOT_COORDINATOR: another pass has
---          started, entries were removed since this one started, or some have no offset:
---          log.drop_unnumbered deletes these. Nothing can be appended meanwhile. Redis groups keep
---          their last delivered id, at most the last entry's; their pending entries are lost.
local clean_swap = require("lib.clean_swap")
local codes = require("lib.codes")
local entry_limits = require("lib.entry_limits")
local foreign_entries = require("lib.foreign_entries")
local offset_map = require("lib.offset_map")

local stream, log, compacted = KEYS[1], KEYS[2], KEYS[3]
local topic_id, token, length, at_most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local MOST_BYTES = 131072

-- Check.
local state = redis.call(
  "HMGET", log, "topic_id", "compacting", "mode", "bits", "shifts", "next", "start", "bytes",
  "entries"
)
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, 0, "" }
end
local map = offset_map.open(state[3], tonumber(state[4]), state[5])
if not map:is_exhausted() then
  return { codes.NONE, 0, 0, "" }
end
if length > 0 and (state[2] ~= token or redis.call("XLEN", compacted) ~= length) then
  return { codes.NOT_COORDINATOR, 0, 0, "" }
end
local from = length > 0 and "(" .. clean_swap.last(compacted) or "-"
local average = tonumber(state[8]) / math.max(tonumber(state[9] or 0), 1)
at_most = math.min(at_most, math.max(1, math.floor(MOST_BYTES / math.max(average, 1))))
local rest = redis.call("XRANGE", stream, from, "+", "COUNT", at_most + 1)
local is_rest = #rest <= at_most
if is_rest and redis.call("XLEN", stream) ~= length + #rest
  or #rest > 0 and not map:offset(rest[#rest][1]) then
  return { codes.NOT_COORDINATOR, 0, 0, "" }
end

-- Write.
if length == 0 then
  redis.call("UNLINK", compacted)
  redis.call("HSET", log, "compacting", token)
end
for i = 1, math.min(#rest, at_most) do
  if #rest[i][2] > entry_limits.MAX then
    return { codes.NONE, 1, length + i - 1, rest[i][1] }
  end
  redis.call("XADD", compacted, rest[i][1], unpack(rest[i][2]))
end
if not is_rest then
  return { codes.NONE, 1, length + at_most, "" }
end
map:reopen()
local last_id = map:last(tonumber(state[6]))
local before = foreign_entries.open(stream, log)
before.cursor.id = clean_swap.lower(before.cursor.id, last_id)
clean_swap.take_over(stream, compacted, last_id)
redis.call("UNLINK", stream)
redis.call("RENAME", compacted, stream)
redis.call("HSET", log, "shifts", map:text(tonumber(state[7])))
local after = foreign_entries.open(stream, log)
redis.call("HSET", log, "counted", foreign_entries.moved(before.cursor, after.added - before.added))
redis.call("HDEL", log, "compacting")
return { codes.NONE, 0, 0, "" }
