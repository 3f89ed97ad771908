--- log.begin_epoch  version 1  writes
--- Begin the leader epoch of the cluster in a partition's log, which may have lost its last
--- records.
---
--- KEYS     stream     stream  the partition's records
---          log        hash    the partition's state
--- ARGV     topic_id   text    the topic id the caller expects, 32 hex digits
---          epoch      int     the leader epoch
---          known      int     the end of the records that the caller knows of, -1 for none
---          size       int     bytes that the marker adds to the log's size
---          fields...  bytes   the fields and values of a marker of an aborted transaction; none in
---                             bytes mode
--- RETURNS  error      int     a lib.codes value
---          lost       int     the first offset of records that were lost, -1 if none are known
---                             to be
---          next       int     the log end offset: the offsets of lost records are not given again,
---                             nor is the one after them, where a reader of all of them is
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: one row per epoch, at most 50
--- COST     O(1), at most 13 calls + 4 per new_ms
--- NOTES    It numbers foreign entries first: new_ms are the milliseconds of their ids. A second
---          call of an epoch, of another broker, changes only what that broker knows more: lost
---          records above those that are known to be. In time mode the log continues at the clock,
---          so that a reader of lost records is within the log. The marker takes the last offset
---          that is left out: clients that read to the end get there. Epochs are never lowered. A
---          segment whose copy began before is refused by log.add_segment.
local clock = require("lib.clock")
local codes = require("lib.codes")
local num = require("lib.num")
local numbering = require("lib.numbering")

local stream, log = KEYS[1], KEYS[2]
local topic_id, epoch = ARGV[1], tonumber(ARGV[2])
local known, size = tonumber(ARGV[3]), tonumber(ARGV[4])
local MOST, FIELDS = 50, 5

local state = redis.call("HMGET", log, "topic_id", "mode", "bits", "epoch", "epochs", "start")
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1 }
end
local rows = {}
for row in string.gmatch(state[5] or "", "%S+") do
  rows[#rows + 1] = row
end

-- Write.
local ended, map, is_numbered = numbering.settle(numbering.open(stream, log))
local is_new = epoch > tonumber(state[4])
-- Of the newest row: where it begins, where the log ended before, and the end of lost records.
local begun, next_offset, before, known_end = false, ended, ended, ended
if is_new then
  next_offset = math.max(ended, known > ended and known + 1 or 0)
  if state[2] == "time" and ended > 0 then
    next_offset = math.max(next_offset, clock.now_ms() * 2 ^ tonumber(state[3]))
  end
  begun = next_offset
elseif rows[#rows] then
  local number, from, where, upto = string.match(rows[#rows], "^(%d+):(%d+):(%d+):(%d+)$")
  if tonumber(number) == epoch then
    begun, before, known_end = tonumber(from), tonumber(where), tonumber(upto)
    next_offset = math.max(ended, known > known_end and known + 1 or 0)
    rows[#rows] = nil
  end
end
local lost = begun and known > known_end and known_end or -1
if not begun or not is_new and lost < 0 then
  return { codes.NONE, -1, ended }
end
rows[#rows + 1] = num.text(epoch) .. ":" .. num.text(begun) .. ":" .. num.text(before) .. ":"
  .. num.text(math.max(known, known_end))
redis.call(
  "HSET", log, "epoch", num.text(epoch), "epoch_ms", num.text(clock.now_ms()), "next",
  num.text(next_offset), "epochs", table.concat(rows, " ", math.max(1, #rows - MOST + 1))
)
if is_new then
  -- A copy to segments that has begun may have lost records.
  redis.call("HDEL", log, "copy_lease")
end
if next_offset > ended and is_numbered and #ARGV >= FIELDS then
  -- Refused if there was an entry with a greater id, which is gone.
  local id = map:namer()(next_offset - 1)
  local added = redis.pcall("XADD", stream, id, unpack(ARGV, FIELDS))
  if type(added) ~= "table" or not added.err then
    redis.call("HINCRBY", log, "bytes", size)
    redis.call("HINCRBY", log, "entries", 1)
    -- Readers look for markers in a log that has had a transaction.
    redis.call("HSETNX", log, "stable", -1)
    if map:note_append(next_offset - 1) then
      redis.call("HSET", log, "shifts", map:text(tonumber(state[6])))
    end
  end
end
redis.call("PUBLISH", stream, num.text(next_offset))
return { codes.NONE, lost, next_offset }
