--- log.group_read  version 1  writes
--- One reader of a Redis group has what it was given and has not committed yet, or the next entries.
---
--- KEYS     stream    stream  the partition's records
---          log       hash    the partition's state
--- ARGV     group     bytes   the Redis group's name
---          consumer  bytes   the reader's name in it
---          topic_id  bytes   the topic the caller believes in, 32 hex digits
---          offset    int     where the reader wants to go on
---          count     int     entries at most
---          claim     bytes   0-0: the partition has just become this reader's, and what others left
---                            pending is to be its own; else what the answer before this says, empty
---                            once all is
--- RETURNS  error     int     a lib.codes value
---          first     int     the first offset delivered, -1 for none
---          last      int     the last one
---          claim     bytes   what others left is the reader's own up to here, and nothing behind it
---                            is delivered; empty: all of it
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(count), and 1,000 pending entries to claim, at most 9 calls + 2 per deleted_page
--- NOTES    Many pending entries are claimed by several calls; who is given nothing meanwhile calls again.
---          The group begins before `offset` when there is none yet, and only then (seed 001); it
---          never goes back. The entries themselves are read as always: here they are only handed out.
---          What was given and is no longer in the stream is acknowledged: nobody could read it.
local codes = require("lib.codes")
local entry_id = require("lib.entry_id")

local stream, log = KEYS[1], KEYS[2]
local group, consumer, topic_id, offset = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local count, claim = ARGV[5], ARGV[6]
local PAGES, CLAIMS = 100, 1000

-- Check. Refusals live here.
local state = redis.call("HMGET", log, "topic_id", "mode", "bits")
if not state[1] then
  return { codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, claim }
end
if state[1] ~= topic_id then
  return { codes.UNKNOWN_TOPIC_ID, -1, -1, claim }
end
local mode, bits = state[2], tonumber(state[3])
local before = offset > 0 and entry_id.id(mode, bits, offset - 1) or "0-0"

-- Write.
local function next_from(place)
  local found = redis.pcall(
    "XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", stream, place
  )
  return found
end

if claim ~= "" then
  redis.pcall("XGROUP", "CREATE", stream, group, before, "MKSTREAM")
  local page = redis.pcall(
    "XAUTOCLAIM", stream, group, consumer, 0, claim, "COUNT", CLAIMS, "JUSTID"
  )
  claim = not page.err and page[1] ~= "0-0" and page[1] or ""
end
local found = next_from(before)
if found and found.err then
  redis.call("XGROUP", "CREATE", stream, group, before, "MKSTREAM")
  found = next_from(before)
end
local function rows_of(reply)
  return reply and reply[1] and reply[1][2] or {}
end

-- Whether nobody else's entry may stand before this one.
local claimed_ms, claimed_seq = string.match(claim, "^(%d+)%-(%d+)$")
local function is_next(id)
  if not claimed_ms then
    return true
  end
  local ms, seq = string.match(id, "^(%d+)%-(%d+)$")
  ms, seq = tonumber(ms) - tonumber(claimed_ms), tonumber(seq) - tonumber(claimed_seq)
  return ms < 0 or ms == 0 and seq < 0
end

local rows = {}
for _ = 1, PAGES do
  local gone = {}
  for _, row in ipairs(rows_of(found)) do
    if row[2] and is_next(row[1]) then
      rows[#rows + 1] = row
    elseif not row[2] then
      gone[#gone + 1] = row[1]
    end
  end
  if #gone == 0 then
    break
  end
  redis.call("XACK", stream, group, unpack(gone))
  if #rows > 0 then
    break
  end
  found = next_from(before)
end
if #rows == 0 and claim == "" then
  rows = rows_of(next_from(">"))
end
local first, last = -1, -1
for _, row in ipairs(rows) do
  local own = entry_id.offset(mode, bits, row[1])
  if own then
    first = first < 0 and own or first
    last = own
  end
end
return { codes.NONE, first, last, claim }
