--- log.group_read  version 1  writes
--- Deliver to a reader of a Redis group its uncommitted entries, or else the next ones.
---
--- KEYS     stream    stream  the partition's records
---          log       hash    the partition's state
--- ARGV     group     text    the Redis group's name
---          consumer  text    the reader's name in it
---          topic_id  text    the topic id the caller expects, 32 hex digits
---          offset    int     the next offset the reader wants
---          count     int     entries at most
---          claim     bytes=  0-0: the partition is newly this reader's, so claim what others left
---                            pending; else the claim that the previous call returned
--- RETURNS  error     int     a lib.codes value
---          first     int     the first offset delivered, -1 for none
---          last      int     the last one
---          claim     bytes   pending entries of others are claimed up to here, and none above is
---                            delivered; empty: all are claimed
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: one pending entry per record that a member reads
--- COST     O(count), and 1,000 pending entries to claim, at most 15 calls + 2 per deleted_page
---          + 4 per new_ms
--- NOTES    Claiming takes several calls if many entries are pending: a reader that gets none calls
---          again. A missing group is created just below `offset`; an existing one never moves
---          back. The reply has offsets only: the broker reads the entries with XRANGE. Delivered
---          entries that are no longer in the stream are acknowledged: they cannot be read.
local codes = require("lib.codes")
local numbering = require("lib.numbering")

local stream, log = KEYS[1], KEYS[2]
local group, consumer, topic_id, offset = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local count, claim = ARGV[5], ARGV[6]
local PAGES, CLAIMS = 100, 1000

-- Check.
local state = redis.call("HMGET", log, "topic_id")
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, claim }
end

-- Write.
local _, map = numbering.settle(numbering.open(stream, log))
local before = offset > 0 and map:id(offset - 1) or "0-0"

local function next_from(place)
  return redis.pcall(
    "XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", stream, place
  )
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

-- Return whether the entry is in the range that is claimed already.
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
  local own = map:offset(row[1])
  if own then
    first = first < 0 and own or first
    last = own
  end
end
return { codes.NONE, first, last, claim }
