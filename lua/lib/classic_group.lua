--- A classic group as it is stored: its state, its members' rows, its deadlines.
--- lib.classic_membership says who is a member, lib.classic_rebalance moves the group from one state to the next.
---
--- KEYS of every script on a group begin: group, members, profiles, protocols, instances,
--- assignments, deadlines. A script loads, checks, moves, and saves once at the end.
---
--- Empty -> PreparingRebalance -> CompletingRebalance -> Stable, and back to PreparingRebalance
--- whenever the members change; without members to Empty. The generation grows when a rebalance
--- completes, and never otherwise.
---
--- deadlines: member id -> moment it is dead; ":join" -> the join phase ends; ":hold" -> it waits for no id
--- handed out; ":sync" -> members without SyncGroup are out; ":offsets" -> the next look for old commits.
--- A member whose JoinGroup or SyncGroup is being answered has none: it cannot send a heartbeat.
local codes = require("lib.codes")
local classic_member = require("lib.classic_member")
local num = require("lib.num")

local M = {}

M.EMPTY, M.PREPARING = "Empty", "PreparingRebalance"
M.COMPLETING, M.STABLE = "CompletingRebalance", "Stable"

-- When an Empty group is first looked at for old commits; that look knows the retention.
M.LOOK_MS = 60000

local WORDS = { "type", "state", "protocol_type", "protocol", "leader" }
local NUMBERS = {
  "generation", "size", "awaiting", "pending", "unsynced", "initial", "fresh", "delay", "step",
  "left", "since",
}

--- The group as it stands; `exists` is false for one that was never written.
function M.load(keys)
  local g = {
    group = keys[1], members = keys[2], clients = keys[3], protocols = keys[4],
    instances = keys[5], assignments = keys[6], deadlines = keys[7], began = 0,
  }
  local names = {}
  for _, name in ipairs(WORDS) do
    names[#names + 1] = name
  end
  for _, name in ipairs(NUMBERS) do
    names[#names + 1] = name
  end
  local row = redis.call("HMGET", g.group, unpack(names))
  for i, name in ipairs(WORDS) do
    g[name] = row[i] or ""
  end
  for i, name in ipairs(NUMBERS) do
    g[name] = tonumber(row[#WORDS + i] or 0)
  end
  g.exists = g.type ~= ""
  if not g.exists then
    g.type, g.state = "classic", M.EMPTY
  end
  return g
end

--- What was changed in `g` is stored; whoever waits is rung when there is something to see.
function M.save(g)
  local fields = {}
  for _, name in ipairs(WORDS) do
    fields[#fields + 1] = name
    fields[#fields + 1] = g[name]
  end
  for _, name in ipairs(NUMBERS) do
    fields[#fields + 1] = name
    fields[#fields + 1] = num.text(g[name])
  end
  redis.call("HSET", g.group, unpack(fields))
  if g.ring then
    redis.call("PUBLISH", g.group, num.text(g.generation))
  end
end

--- The earliest deadline as name and moment, or nil.
function M.next_deadline(g)
  local row = redis.call("ZRANGE", g.deadlines, 0, 0, "WITHSCORES")
  if row[1] then
    return row[1], tonumber(row[2])
  end
  return nil
end

--- Milliseconds until the earliest deadline, -1 without any. 0 or less: the group must be ticked.
function M.wait_ms(g, now_ms)
  local _, moment = M.next_deadline(g)
  return moment and math.max(0, moment - now_ms) or -1
end

--- Whether a deadline has passed that nobody has acted upon.
function M.overdue(g, now_ms)
  local _, moment = M.next_deadline(g)
  return moment ~= nil and moment <= now_ms
end

--- Something happens at that moment, unless it is set anew.
function M.set_deadline(g, name, moment)
  redis.call("ZADD", g.deadlines, num.text(moment), name)
end

--- The member is dead unless it is heard of within its session timeout.
function M.restart(g, id, row, now_ms)
  M.set_deadline(g, id, now_ms + row.session)
end

--- Old commits are looked for at that moment.
function M.look_at(g, moment)
  M.set_deadline(g, ":offsets", moment)
end

--- The same for a group whose next look may already be set.
function M.look_later(g, now_ms)
  redis.call("ZADD", g.deadlines, "NX", num.text(now_ms + M.LOOK_MS), ":offsets")
end

--- The member's row, or nil for a stranger and for a pending member.
function M.row(g, id)
  return classic_member.parse(redis.call("HGET", g.members, id))
end

function M.is_pending(g, id)
  return redis.call("HGET", g.members, id) == classic_member.PENDING
end

--- The row is stored.
function M.put(g, id, row)
  redis.call("HSET", g.members, id, classic_member.text(row))
end

--- Every member (not the pending ones) as a list of {id, row}, in a fixed order.
function M.rows(g)
  local flat, list = redis.call("HGETALL", g.members), {}
  for i = 1, #flat, 2 do
    local row = classic_member.parse(flat[i + 1])
    if row then
      list[#list + 1] = { flat[i], row }
    end
  end
  table.sort(list, function(a, b)
    return a[1] < b[1]
  end)
  return list
end

--- NONE when the id is a member's and, where an instance is named, that instance's.
--- `instance` is empty for a dynamic member.
function M.validate(g, id, instance)
  if instance ~= "" then
    local known = redis.call("HGET", g.instances, instance)
    if not known then
      return codes.UNKNOWN_MEMBER_ID
    end
    if known ~= id then
      return codes.FENCED_INSTANCE_ID
    end
  end
  if not M.row(g, id) then
    return codes.UNKNOWN_MEMBER_ID
  end
  return codes.NONE
end

--- The answer to a JoinGroup that is over: every member's metadata for the leader, flat {id,
--- instance, metadata, ...}; nothing for the others. A dynamic member's instance is empty.
function M.roster(g, id)
  local list = {}
  if g.leader == id then
    for _, pair in ipairs(M.rows(g)) do
      local profile = classic_member.profile(redis.call("HGET", g.clients, pair[1]))
      local protocols = redis.call("HGET", g.protocols, pair[1])
      list[#list + 1] = pair[1]
      list[#list + 1] = profile.instance or ""
      list[#list + 1] = classic_member.metadata(protocols, g.protocol)
    end
  end
  return list
end

return M
