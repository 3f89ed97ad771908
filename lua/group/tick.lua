--- group.tick  version 16  writes
--- Everything that was due in the group has happened: the dead are out, phases ended, old commits gone.
---
--- KEYS     group          hash   state, generation, protocol, counters, votes
---          members        hash   member id -> timeouts and flags
---          profiles       hash   member id -> client id, host, instance
---          protocols      hash   member id -> protocols and metadata
---          instances      hash   group instance id -> member id
---          assignments    hash   member id -> assignment
---          deadlines      zset   member id or phase -> moment, ms
---          offsets        hash   `korvet:<topic>:<p>` -> what lib.commit says
---          waiting        hash   producer id -> its newest transaction here, and commits that wait
---          consumers      hash   member id -> its epoch, subscription and partitions
---          targets        hash   member id -> the partitions it should have
---          holders        hash   partition -> since when which member has it
--- ARGV     retention_ms   int    how long commits of a group without members are kept
---          present_ms     int    for how long brokers have been there again, -1: all the while
--- RETURNS  error          int    a lib.codes value
---          wait_ms        int    until the group's next deadline, -1 for none
---          began          int    rebalances begun
---          expired        list   fields of the commits that are gone
---          gone           int    1: nothing is left of the group
--- COST     O(members), and 4,000 commits, at most 45 calls + 11 per member
--- NOTES    Brokers look twice a second. A deadline missed by more than 5 s says that none was there,
---          and so does a member's before a broker was there again for 5 s: nobody could say to be
---          alive.
---          Members then have another session instead of being dead.
---          Which transactions ended here is known for a day longer than the group: offsets that come
---          late would wait for an end that has been, and count with the producer's next one.
---          Of very many commits 4,000 are looked at a second, and then not before a minute has passed.
---          At most 1,000 deadlines a run; wait_ms is 0 when there are more.
local codes = require("lib.codes")
local clock = require("lib.clock")
local commit = require("lib.commit")
local consumers = require("lib.consumers")
local group = require("lib.group")
local kinds = require("lib.kinds")
local num = require("lib.num")
local pending = require("lib.pending")
local rebalance = require("lib.rebalance")
local seats = require("lib.seats")

local offsets, waiting = KEYS[8], KEYS[9]
local retention_ms, present_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local MOST, UNHEARD_MS, GO_ON_MS = 1000, 5000, 1000
local PHASES = { [":join"] = true, [":hold"] = true, [":sync"] = true, [":offsets"] = true }
-- So many deadlines have a member's among them, if one has passed.
local FIRST = 5

local g = group.load(KEYS)
local now_ms = clock.now_ms()
local expired, acted = {}, false
-- A group of the newer protocol, or nil.
local newer = g.type == "consumer"
  and consumers.load({ KEYS[1], KEYS[10], KEYS[11], KEYS[12], KEYS[5], KEYS[7] })
kinds.hashes(KEYS, 2, 6)
kinds.hashes(KEYS, 8, 12)

-- Write.
local due = redis.call(
  "ZRANGEBYSCORE", g.deadlines, "-inf", num.text(now_ms), "WITHSCORES", "LIMIT", 0, FIRST
)
local unheard = false
for i = 1, #due, 2 do
  local late_ms = now_ms - tonumber(due[i + 1])
  -- A phase's end may have been set since brokers are there again; sessions are longer than 5 s.
  local alone = not PHASES[due[i]] and present_ms >= 0 and late_ms > present_ms - UNHEARD_MS
  unheard = unheard or alone or due[i] ~= ":offsets" and late_ms > UNHEARD_MS
end
if unheard then
  if newer then
    consumers.forgive(newer, now_ms)
  else
    rebalance.forgive(g, now_ms)
  end
end
for _ = 1, MOST do
  local name, moment = group.next_deadline(g)
  if not name or moment > now_ms then
    break
  end
  acted = true
  if newer and group.is_pending(g, name) then
    -- The id was handed out before the group became one of the newer protocol.
    seats.remove_pending(g, name)
    redis.call("HSET", g.group, "pending", num.text(g.pending))
  elseif newer and name == ":hold" then
    redis.call("ZREM", g.deadlines, name)
  elseif newer and name ~= ":offsets" then
    consumers.expire(newer, name, now_ms)
  else
    rebalance.expire(g, name, moment, now_ms)
  end
  if name == ":offsets" and g.state == group.EMPTY then
    -- A look at very many takes some ticks: where the last one ended, and the first to go of those before.
    local look, next_ms, cursor = redis.call("HMGET", g.group, "looked", "earliest"), nil, nil
    expired, next_ms, cursor = commit.expire(
      offsets, g.protocol_type ~= "" and g.since or nil, retention_ms, now_ms,
      look[1] or "0", tonumber(look[2] or nil)
    )
    if cursor ~= "0" then
      redis.call("HSET", g.group, "looked", cursor, "earliest", next_ms and num.text(next_ms) or "")
      group.look_at(g, now_ms + GO_ON_MS)
    elseif next_ms then
      if look[1] then
        redis.call("HDEL", g.group, "looked", "earliest")
        next_ms = math.max(next_ms, now_ms + group.LOOK_MS)
      end
      group.look_at(g, next_ms)
    elseif redis.call("HLEN", offsets) > 0 or pending.is_open(waiting) or group.next_deadline(g) then
      -- Commits that a look in parts has missed, offsets that wait, or ids that were handed out.
      redis.call("HDEL", g.group, "looked", "earliest")
      group.look_at(g, now_ms + group.LOOK_MS)
    else
      redis.call("UNLINK", unpack(KEYS, 1, 8))
      redis.call("UNLINK", unpack(KEYS, 10))
      pending.leave(waiting)
      return { codes.NONE, -1, g.began, expired, 1 }
    end
  end
end
if acted and newer then
  consumers.save(newer, now_ms)
elseif acted and g.exists then
  group.save(g)
end
local began = newer and newer.began or g.began
return { codes.NONE, group.wait_ms(g, now_ms), began, expired, 0 }
