--- group.tick  version 1  writes
--- Everything that was due in the group has happened: the dead are out, phases ended, old commits gone.
---
--- KEYS     group              hash  state, generation, protocol, counters, votes
---          members            hash  member id -> timeouts and flags
---          clients            hash  member id -> client id, host, instance
---          protocols          hash  member id -> protocols and metadata
---          instances          hash  group instance id -> member id
---          assignments        hash  member id -> assignment
---          deadlines          zset  member id or phase -> moment, ms
---          offsets            hash  `korvet:<topic>:<p>` -> what lib.offset_commit says
---          txn_offsets        hash  producer id -> its newest transaction here, and commits that wait
---          consumer_members   hash  member id -> its epoch, subscription and partitions
---          target_assignment  hash  member id -> the partitions it should have
---          partition_owners   hash  partition -> since when which member has it
--- ARGV     retention_ms       int   how long commits of a group without members are kept
---          present_ms         int   for how long brokers have been there again, -1: all the while
--- RETURNS  error              int   a lib.codes value
---          wait_ms            int   until the group's next deadline, -1 for none
---          began              int   rebalances begun
---          expired            list  fields of the commits that are gone
---          gone               int   1: nothing is left of the group
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
local offset_commit = require("lib.offset_commit")
local consumer_group = require("lib.consumer_group")
local classic_group = require("lib.classic_group")
local key_types = require("lib.key_types")
local num = require("lib.num")
local txn_offset_commit = require("lib.txn_offset_commit")
local classic_rebalance = require("lib.classic_rebalance")
local classic_membership = require("lib.classic_membership")

local offsets, txn_offsets = KEYS[8], KEYS[9]
local retention_ms, present_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local MOST, UNHEARD_MS, GO_ON_MS = 1000, 5000, 1000
local PHASES = { [":join"] = true, [":hold"] = true, [":sync"] = true, [":offsets"] = true }
-- So many deadlines have a member's among them, if one has passed.
local FIRST = 5

local g = classic_group.load(KEYS)
local now_ms = clock.now_ms()
local expired, acted = {}, false
-- A group of the newer protocol, or nil.
local newer = g.type == "consumer"
  and consumer_group.load({ KEYS[1], KEYS[10], KEYS[11], KEYS[12], KEYS[5], KEYS[7] })
key_types.hashes(KEYS, 2, 6)
key_types.hashes(KEYS, 8, 12)

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
    consumer_group.forgive(newer, now_ms)
  else
    classic_rebalance.forgive(g, now_ms)
  end
end
for _ = 1, MOST do
  local name, moment = classic_group.next_deadline(g)
  if not name or moment > now_ms then
    break
  end
  acted = true
  if newer and classic_group.is_pending(g, name) then
    -- The id was handed out before the group became one of the newer protocol.
    classic_membership.remove_pending(g, name)
    redis.call("HSET", g.group, "pending", num.text(g.pending))
  elseif newer and name == ":hold" then
    redis.call("ZREM", g.deadlines, name)
  elseif newer and name ~= ":offsets" then
    consumer_group.expire(newer, name, now_ms)
  else
    classic_rebalance.expire(g, name, moment, now_ms)
  end
  if name == ":offsets" and g.state == classic_group.EMPTY then
    -- A look at very many takes some ticks: where the last one ended, and the first to go of those before.
    local look, next_ms, cursor = redis.call("HMGET", g.group, "offsets_cursor", "offsets_next_ms"), nil, nil
    expired, next_ms, cursor = offset_commit.expire(
      offsets, g.protocol_type ~= "" and g.since or nil, retention_ms, now_ms,
      look[1] or "0", tonumber(look[2] or nil)
    )
    if cursor ~= "0" then
      redis.call("HSET", g.group, "offsets_cursor", cursor, "offsets_next_ms", next_ms and num.text(next_ms) or "")
      classic_group.look_at(g, now_ms + GO_ON_MS)
    elseif next_ms then
      if look[1] then
        redis.call("HDEL", g.group, "offsets_cursor", "offsets_next_ms")
        next_ms = math.max(next_ms, now_ms + classic_group.LOOK_MS)
      end
      classic_group.look_at(g, next_ms)
    elseif redis.call("HLEN", offsets) > 0 or txn_offset_commit.is_open(txn_offsets) or classic_group.next_deadline(g) then
      -- Commits that a look in parts has missed, offsets that wait, or ids that were handed out.
      redis.call("HDEL", g.group, "offsets_cursor", "offsets_next_ms")
      classic_group.look_at(g, now_ms + classic_group.LOOK_MS)
    else
      redis.call("UNLINK", unpack(KEYS, 1, 8))
      redis.call("UNLINK", unpack(KEYS, 10))
      txn_offset_commit.leave(txn_offsets)
      return { codes.NONE, -1, g.began, expired, 1 }
    end
  end
end
if acted and newer then
  consumer_group.save(newer, now_ms)
elseif acted and g.exists then
  classic_group.save(g)
end
local began = newer and newer.began or g.began
return { codes.NONE, classic_group.wait_ms(g, now_ms), began, expired, 0 }
