--- group.record_lag  version 1  writes
--- Record the lag of groups in this minute, and remove the samples that are kept no longer.
---
--- KEYS     lag_history  hash   minutes since 1970 -> the lag of a part of the groups
--- ARGV     sample       bytes  the lag of the groups
--- RETURNS  error        int    a lib.codes value
---          recorded     int    1: recorded; 0: the minute has a sample of another broker
--- FULL     always: old samples are removed
--- COST     O(samples), at most 6 calls
--- NOTES    Kept are the samples of an hour, and for a day the first of each quarter of an hour.
---          The key expires a day after the last sample.
local clock = require("lib.clock")
local codes = require("lib.codes")
local num = require("lib.num")

local history = KEYS[1]
local sample = ARGV[1]

local HOUR, DAY, QUARTER = 60, 1440, 15

local minute = math.floor(clock.now_ms() / 60000)
local field = num.text(minute)
if redis.call("HEXISTS", history, field) == 1 then
  return { codes.NONE, 0 }
end

local minutes = {}
for _, each in ipairs(redis.call("HKEYS", history)) do
  minutes[#minutes + 1] = tonumber(each)
end
table.sort(minutes)
local old, quarter = {}, -1
for _, each in ipairs(minutes) do
  local its_quarter = math.floor(each / QUARTER)
  if each <= minute - DAY or (each <= minute - HOUR and its_quarter == quarter) then
    old[#old + 1] = num.text(each)
  end
  quarter = its_quarter
end

-- Write.
if #old > 0 then
  redis.call("HDEL", history, unpack(old))
end
redis.call("HSET", history, field, sample)
redis.call("PEXPIRE", history, DAY * 60000)
return { codes.NONE, 1 }
