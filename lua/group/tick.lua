--- group.tick  version 1  writes
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
--- ARGV     retention_ms   int    how long commits of a group without members are kept
--- RETURNS  error          int    a lib.codes value
---          wait_ms        int    until the group's next deadline, -1 for none
---          began          int    rebalances begun
---          expired        list   fields of the commits that are gone
---          gone           int    1: nothing is left of the group
--- COST     O(members), at most 20 calls + 11 per member
--- NOTES    Brokers look twice a second. A deadline missed by more than 5 s says that none was there, so
---          nobody could say to be alive: members then have another session instead of being dead.
---          At most 1,000 deadlines a run; wait_ms is 0 when there are more.
local codes = require("lib.codes")
local clock = require("lib.clock")
local commit = require("lib.commit")
local group = require("lib.group")

local offsets = KEYS[8]
local retention_ms = tonumber(ARGV[1])
local MOST, UNHEARD_MS = 1000, 5000

local g = group.load(KEYS)
local now_ms = clock.now_ms()
local expired, acted = {}, false

-- Write.
local overdue, since_ms = group.next_deadline(g)
if overdue and overdue ~= ":offsets" and now_ms - since_ms > UNHEARD_MS then
  group.forgive(g, now_ms)
end
for _ = 1, MOST do
  local name, moment = group.next_deadline(g)
  if not name or moment > now_ms then
    break
  end
  acted = true
  group.expire(g, name, moment, now_ms)
  if name == ":offsets" and g.state == group.EMPTY then
    local next_ms
    expired, next_ms = commit.expire(offsets, g.protocol_type ~= "" and g.since or nil, retention_ms, now_ms)
    if next_ms then
      group.look_at(g, next_ms)
    elseif g.pending == 0 then
      redis.call("UNLINK", unpack(KEYS))
      return { codes.NONE, -1, g.began, expired, 1 }
    end
  end
end
if acted and g.exists then
  group.save(g)
end
return { codes.NONE, group.wait_ms(g, now_ms), g.began, expired, 0 }
