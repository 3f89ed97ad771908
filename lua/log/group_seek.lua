--- log.group_seek  version 1  writes
--- Move a Redis group to an offset, and acknowledge its pending entries below.
---
--- KEYS     stream    stream  the partition's records
---          log       hash    the partition's state
--- ARGV     group     text    the Redis group's name
---          topic_id  text    the topic id the caller expects, 32 hex digits
---          offset    int     the next record the group wants
---          move      int     1: the position becomes that offset; 0: at least that offset
--- RETURNS  error     int     a lib.codes value
---          acked     int     entries acknowledged
---          more      int     1: more entries below the offset are pending: call again
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: one Redis group per group that exists
--- COST     O(pending below the offset), at most 5 calls + 2 per hundred_pending
--- NOTES    XREADGROUP continues exactly there. In batch layout a batch that extends above the
---          offset is delivered again whole. Acknowledges at most 10,000 entries per call.
local codes = require("lib.codes")
local fields = require("lib.fields")
local offset_map = require("lib.offset_map")

local stream, log = KEYS[1], KEYS[2]
local group, topic_id, offset, move = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == "1"
local PAGE, PAGES = 100, 100

-- Check.
local state = redis.call("HMGET", log, "topic_id", "mode", "bits", "shifts")
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, 0 }
end
local map = offset_map.open(state[2], tonumber(state[3]), state[4])
local last = offset > 0 and map:id(offset - 1) or "0-0"

local function before(one, other)
  local ms, seq = string.match(one, "^(%d+)%-(%d+)$")
  local other_ms, other_seq = string.match(other, "^(%d+)%-(%d+)$")
  ms, other_ms = tonumber(ms), tonumber(other_ms)
  return ms < other_ms or ms == other_ms and tonumber(seq) < tonumber(other_seq)
end

if not move then
  local groups = redis.pcall("XINFO", "GROUPS", stream)
  for _, row in ipairs(groups.err and {} or groups) do
    if fields.get(row, "name") == group then
      move = before(fields.get(row, "last-delivered-id"), last)
    end
  end
end

-- Write.
if move then
  local moved = redis.pcall("XGROUP", "SETID", stream, group, last)
  if type(moved) == "table" and moved.err then
    redis.call("XGROUP", "CREATE", stream, group, last, "MKSTREAM")
    return { codes.NONE, 0, 0 }
  end
end
local acked, more = 0, 1
for _ = 1, PAGES do
  local page = redis.pcall("XPENDING", stream, group, "-", last, PAGE)
  if page.err or #page == 0 then
    more = 0
    break
  end
  local ids = {}
  for i, row in ipairs(page) do
    ids[i] = row[1]
  end
  acked = acked + redis.call("XACK", stream, group, unpack(ids))
  if #page < PAGE then
    more = 0
    break
  end
end
return { codes.NONE, acked, more }
