--- share.dead_letters  version 1  writes
--- Return dead letters of a share group that are not copied yet, the oldest first.
---
--- KEYS     log           hash  the partition's state
---          share         hash  share group -> end of its state, epoch, counters
---          share_runs    zset  the groups' available and acquired records
--- ARGV     group         id    the encoded group id
---          topic_id      text  the topic id the caller expects, 32 hex digits
---          producer_id   int   a new producer id, for a group that has none here; 0: none
---          most          int   runs to return at most
--- RETURNS  error         int   a lib.codes value
---          producer_id   int   the id of the producer of all copies; 0: the group has none
---          dead_letters  list  number of the first dead letter, first offset, last offset,
---                              deliveries and reason of each run
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: a producer id
--- COST     O(runs returned), at most 4 calls
--- NOTES    A dead letter's number is the sequence number of its copy, by an idempotent producer: a
---          copy that is sent twice is stored once. Reasons: 1 rejected, 2 delivered too often.
---          Numbers are consecutive within a run, and from run to run.
local codes = require("lib.codes")
local dead_letters = require("lib.dead_letters")
local num = require("lib.num")
local share_runs = require("lib.share_runs")

local log, share, runs = KEYS[1], KEYS[2], KEYS[3]
local group, topic_id, producer, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

-- Check.
local known = redis.call("HGET", log, "topic_id")
if known ~= topic_id then
  return { known and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, {} }
end
local state = share_runs.open(share, runs, group)
if not state then
  return { codes.NONE, 0, {} }
end
local found = dead_letters.list(state, most)

-- Write.
if state.producer == 0 and producer > 0 then
  state.producer = producer
  share_runs.save(state)
end
local reply = {}
for _, letter in ipairs(found) do
  reply[#reply + 1], reply[#reply + 2] = num.text(letter.number), num.text(letter.first)
  reply[#reply + 1], reply[#reply + 2] = num.text(letter.last), num.text(letter.deliveries)
  reply[#reply + 1] = num.text(letter.reason)
end
return { codes.NONE, state.producer, reply }
