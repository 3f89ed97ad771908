--- log.drop_unnumbered  version 1  writes
--- Count or delete the entries of other programs that can have no offset.
---
--- KEYS     stream    stream  the partition's records
---          log       hash    the partition's state
--- ARGV     topic_id  text    the topic id the caller expects, 32 hex digits
---          after     bytes   empty, or the `last` of the call before: entries up to it are skipped
---          delete    int     1: delete them; 0: only count
--- RETURNS  error     int     a lib.codes value
---          entries   int     entries found by this call
---          size      int     bytes of their names and values
---          last      bytes   call again with it as `after`; empty: there are no more
---          spent     int     1: no id is left for an append until log.rebuild
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: records are removed
--- COST     O(entries found), up to 1,000 or 8 MB, at most 300 calls
--- NOTES    They are below the first id that the log uses after them, lib.offset_map's TOP, or, if
---          TOP is exhausted, above its last. Redis refuses lower ids from then on: no entry is
---          added among them meanwhile. Counters keep what was counted until retention reaches it.
local codes = require("lib.codes")
local entry_pages = require("lib.entry_pages")
local num = require("lib.num")
local offset_map = require("lib.offset_map")

local stream, log = KEYS[1], KEYS[2]
local topic_id, after, delete = ARGV[1], ARGV[2], ARGV[3] == "1"

-- Check.
local row = redis.call("HMGET", log, "topic_id", "mode", "bits", "shifts")
if row[1] ~= topic_id then
  return { row[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, 0, "", 0 }
end
local map = offset_map.open(row[2], tonumber(row[3]), row[4])
local top = map:top()
if not top then
  return { codes.NONE, 0, 0, "", 0 }
end
local to = map:is_exhausted() and "+" or "(" .. top.ms .. "-" .. num.text(top.seq)
local from = top.offset > 0 and "(" .. map:id(top.offset - 1) or "-"
if after ~= "" then
  from = "(" .. after
end
local budget = entry_pages.budget()
budget.entries = 1000
local ids, bytes, last = {}, 0, ""
local is_done = entry_pages.each(stream, from, to, budget, function(entry)
  last = entry[1]
  if not map:offset(last) then
    ids[#ids + 1] = last
    for _, word in ipairs(entry[2]) do
      bytes = bytes + #word
    end
  end
end)

-- Write.
if delete and #ids > 0 then
  redis.call("XDEL", stream, unpack(ids))
  redis.call("HINCRBY", log, "trimmed", #ids)
end
return { codes.NONE, #ids, bytes, is_done and "" or last, map:is_exhausted() and 1 or 0 }
