--- share.describe  version 1  reads
--- Return the state of a share group in a partition.
---
--- KEYS     log           hash  the partition's state
---          share         hash  share group -> end of its state, epoch, counters
---          share_runs    zset  the groups' available and acquired records
--- ARGV     group         id    the encoded group id
---          topic_id      text  the topic id the caller expects, 32 hex digits
---          most          int   acquired runs, and other delivered runs, to return at most
--- RETURNS  error         int   a lib.codes value
---          start         int   the share-partition start offset; -1: the group has no state
---          end           int   records from here on have no state yet
---          epoch         int   the state epoch: changes of the start offset by an administrator
---          available     int   records that are available, or will be after a delay
---          acquired      int   records that members have acquired
---          acknowledged  int   records ever accepted
---          archived      int   records ever rejected, or delivered too often
---          dead_letters  int   dead letters that are not copied yet
---          runs          list  first offset, last offset, deliveries, time of the lock's end in ms
---                              and member of each run that was delivered; member empty: it is
---                              available again, from the time on if that is not 0
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(runs returned), at most 6 calls
--- NOTES    The lag is the number of records from `end` on, as log.lag returns it, plus `available`
---          and `acquired`. A record whose lock has expired counts as acquired until the next
---          share.acquire.
local codes = require("lib.codes")
local num = require("lib.num")
local share_runs = require("lib.share_runs")

local log, share, runs = KEYS[1], KEYS[2], KEYS[3]
local group, topic_id, most = ARGV[1], ARGV[2], tonumber(ARGV[3])

local place = redis.call("HMGET", log, "topic_id", "start")
if place[1] ~= topic_id then
  local refusal = place[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION
  return { refusal, -1, -1, -1, 0, 0, 0, 0, 0, {} }
end
local state = share_runs.open(share, runs, group)
if not state then
  return { codes.NONE, -1, -1, -1, 0, 0, 0, 0, 0, {} }
end
local reply = {}
for _, kind in ipairs(most > 0 and { share_runs.ACQUIRED, share_runs.AVAILABLE } or {}) do
  for _, row in ipairs(share_runs.rows(state, kind, 0, state.ends, most)) do
    if row.deliveries > 0 then
      reply[#reply + 1], reply[#reply + 2] = num.text(row.first), num.text(row.last)
      reply[#reply + 1], reply[#reply + 2] = num.text(row.deliveries), num.text(row.time or 0)
      reply[#reply + 1] = row.member or ""
    end
  end
end
local log_start = tonumber(place[2])
return {
  codes.NONE, math.max(share_runs.start(state), log_start), math.max(state.ends, log_start),
  state.epoch, state.available, state.acquired, state.acknowledged, state.archived,
  state.dead - state.copied, reply,
}
