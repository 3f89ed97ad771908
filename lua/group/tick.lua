--- group.tick  version 1  writes
--- Process expired deadlines: remove members, end rebalance phases, expire offsets.
---
--- KEYS     group              hash    state, generation, protocol, counters, votes
---          members            hash    member id -> timeouts and flags
---          clients            hash    member id -> client id, host, instance
---          protocols          hash    member id -> protocols and metadata
---          instances          hash    group instance id -> member id
---          assignments        hash    member id -> assignment
---          deadlines          zset    member id or phase -> moment, ms
---          offsets            hash    `korvet:<topic>:<p>` -> commit (lib.offset_commit)
---          txn_offsets        hash    producer id -> its newest transaction
---          txn_pending        hash    pending commits, as in lib.txn_offset_commit
---          consumer_members   hash    member id -> epoch, subscription and partitions
---          target_assignment  hash    member id -> the partitions it should own
---          partition_owners   hash    partition -> epoch and member id of its owner
--- ARGV     retention_ms       int     offsets.retention.minutes, in ms
---          present_ms         int     ms since brokers are present again, -1: they always were
---          expected_ms        int=-1  Redis's time by the clock of the broker, -1: unknown
--- RETURNS  error              int     a lib.codes value
---          wait_ms            int     until the group's next deadline, -1 for none
---          rebalances         int     rebalances that this call began
---          expired            list    fields of the expired commits
---          gone               int     1: the group was deleted, 2: it does not exist
--- FULL     always: members and commits are removed
--- COST     O(members), and 4,000 commits, at most 49 calls + 12 per member
--- NOTES    Brokers tick due groups twice a second. A deadline that passed more than 5 s ago means
---          that no broker was present. A member's deadline means the same if it passed less than 5
---          s after brokers were present again: the member could not send a heartbeat. All sessions
---          are then renewed, and no member is removed. They are too if Redis's time is 5 s
---          ahead of what the broker expects: the clock was set forward. If it was set back,
---          deadlines are moved back, so that each is due after its own duration.
---          The numbers of ended transactions are kept a day longer than the group: late offsets of
---          one would wait for its end again, and be committed with the producer's next one.
---          Of many commits 4,000 are checked per second, and the next check is a minute later.
---          One call processes 1,000 deadlines at most; wait_ms is 0 if more have passed.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local classic_membership = require("lib.classic_membership")
local classic_rebalance = require("lib.classic_rebalance")
local modern_group = require("lib.modern_group")
local deadlines = require("lib.deadlines")
local key_types = require("lib.key_types")
local num = require("lib.num")
local offset_commit = require("lib.offset_commit")
local txn_offset_commit = require("lib.txn_offset_commit")

local offsets, txn_offsets = KEYS[8], KEYS[9]
local retention_ms, present_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local expected_ms = tonumber(ARGV[3])
local MAX_DEADLINES, ABSENCE_MS, NEXT_PAGE_MS = 1000, 5000, 1000
local PHASES = { [":join"] = true, [":hold"] = true, [":sync"] = true, [":offsets"] = true }
-- The earliest deadlines to read: one of them is a member's if a member's has passed.
local SAMPLE = 5

-- Return whether no broker was present when one of the earliest deadlines passed.
local function was_absent(g, now_ms)
  if expected_ms >= 0 and now_ms > expected_ms + ABSENCE_MS then
    return true
  end
  local due = redis.call(
    "ZRANGEBYSCORE", g.deadlines, "-inf", num.text(now_ms), "WITHSCORES", "LIMIT", 0, SAMPLE
  )
  for i = 1, #due, 2 do
    local name, late_ms = due[i], now_ms - tonumber(due[i + 1])
    if name ~= deadlines.OFFSETS and late_ms > ABSENCE_MS then
      return true
    end
    -- A phase may have begun since brokers are present again; sessions are longer than 5 s.
    if not PHASES[name] and present_ms >= 0 and late_ms > present_ms - ABSENCE_MS then
      return true
    end
  end
  return false
end

-- Remove a member of a modern group, or a pending member of the classic group that it was.
local function expire_in_modern_group(modern, g, name, now_ms)
  if classic_group.is_pending(g, name) then
    classic_membership.remove_pending(g, name)
    redis.call("HSET", g.group, "pending", num.text(g.pending))
  elseif name == ":hold" then
    redis.call("ZREM", g.deadlines, name)
  else
    modern_group.expire(modern, name, now_ms)
  end
end

-- Delete expired commits of an Empty group. Return their fields, and whether nothing else is left
-- of the group. Many commits take several ticks: the group's hash keeps the cursor of the next
-- page, and the earliest expiry found so far.
local function expire_offsets(g, now_ms)
  local page = redis.call("HMGET", g.group, "offsets_cursor", "offsets_next_ms")
  local expired, next_ms, cursor = offset_commit.expire(
    offsets, g.protocol_type ~= "" and g.since or nil, retention_ms, now_ms,
    page[1] or "0", tonumber(page[2] or nil)
  )
  local later_ms = now_ms + deadlines.OFFSETS_CHECK_MS
  if cursor ~= "0" then
    local next_text = next_ms and num.text(next_ms) or ""
    redis.call("HSET", g.group, "offsets_cursor", cursor, "offsets_next_ms", next_text)
    deadlines.set(g.deadlines, deadlines.OFFSETS, now_ms + NEXT_PAGE_MS)
  elseif next_ms then
    if page[1] then
      redis.call("HDEL", g.group, "offsets_cursor", "offsets_next_ms")
      next_ms = math.max(next_ms, later_ms)
    end
    deadlines.set(g.deadlines, deadlines.OFFSETS, next_ms)
  elseif redis.call("HLEN", offsets) > 0 or txn_offset_commit.is_open(txn_offsets)
    or deadlines.first(g.deadlines) then
    -- Commits that earlier pages did not contain, pending commits, or pending members.
    redis.call("HDEL", g.group, "offsets_cursor", "offsets_next_ms")
    deadlines.set(g.deadlines, deadlines.OFFSETS, later_ms)
  else
    return expired, true
  end
  return expired, false
end

local g = classic_group.load(KEYS)
local now_ms = clock.now_ms()
if not g.exists and not deadlines.first(g.deadlines) then
  redis.call("UNLINK", g.deadlines)
  return { codes.NONE, -1, 0, {}, 2 }
end
local expired, changed = {}, false
local modern = modern_group.is_stored(g.type)
  and modern_group.load({ KEYS[1], KEYS[11], KEYS[12], KEYS[13], KEYS[5], KEYS[7] }, g.type)
key_types.hashes(KEYS, 2, 6)
key_types.hashes(KEYS, 8, 13)

-- Write.
deadlines.follow_clock(g.deadlines, now_ms)
if was_absent(g, now_ms) then
  if modern then
    modern_group.renew_all_sessions(modern, now_ms)
  else
    classic_rebalance.renew_all_sessions(g, now_ms)
  end
end
for _ = 1, MAX_DEADLINES do
  local name, moment = deadlines.first(g.deadlines)
  if not name or moment > now_ms then
    break
  end
  changed = true
  if name == deadlines.OFFSETS then
    redis.call("ZREM", g.deadlines, name)
  elseif modern then
    expire_in_modern_group(modern, g, name, now_ms)
  else
    classic_rebalance.expire(g, name, moment, now_ms)
  end
  if name == deadlines.OFFSETS and g.state == classic_group.EMPTY then
    local is_deleted
    expired, is_deleted = expire_offsets(g, now_ms)
    if is_deleted then
      redis.call("UNLINK", unpack(KEYS, 1, 8))
      redis.call("UNLINK", unpack(KEYS, 11))
      txn_offset_commit.delete_group(txn_offsets, KEYS[10])
      return { codes.NONE, -1, g.rebalances, expired, 1 }
    end
  end
end
if changed and modern then
  modern_group.save(modern, now_ms)
elseif changed and g.exists then
  classic_group.save(g)
end
local rebalances = modern and modern.rebalances or g.rebalances
return { codes.NONE, deadlines.wait_ms(g.deadlines, now_ms), rebalances, expired, 0 }
