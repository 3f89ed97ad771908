--- A classic group: its state, and the steps that move it from one state to the next.
---
--- KEYS of every script on a group begin: group, members, profiles, protocols, instances,
--- assignments, deadlines. A script loads, checks, moves, and saves once at the end.
---
--- Empty -> PreparingRebalance -> CompletingRebalance -> Stable, and back to PreparingRebalance
--- whenever the members change; without members to Empty. The generation grows when a rebalance
--- completes, and never otherwise.
---
--- deadlines: member id -> moment it is dead; ":join" -> the end of the join phase; ":sync" -> the
--- moment members without SyncGroup are thrown out; ":offsets" -> the next look for old commits.
--- A member whose JoinGroup or SyncGroup is being answered has none: it cannot send a heartbeat.
local codes = require("lib.codes")
local member = require("lib.member")
local num = require("lib.num")
local pack = require("lib.pack")

local M = {}

M.EMPTY, M.PREPARING = "Empty", "PreparingRebalance"
M.COMPLETING, M.STABLE = "CompletingRebalance", "Stable"

-- A new member's JoinGroup may wait so long; then it is thrown out, or comes again.
local NEW_MEMBER_MS = 300000
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
    group = keys[1], members = keys[2], profiles = keys[3], protocols = keys[4],
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

local function set_deadline(g, name, moment)
  redis.call("ZADD", g.deadlines, num.text(moment), name)
end

--- The member is dead unless it is heard of within its session timeout.
function M.restart(g, id, row, now_ms)
  set_deadline(g, id, now_ms + row.session)
end

--- The member's row, or nil for a stranger and for a pending member.
function M.row(g, id)
  return member.parse(redis.call("HGET", g.members, id))
end

function M.is_pending(g, id)
  return redis.call("HGET", g.members, id) == member.PENDING
end

--- The row is stored.
function M.put(g, id, row)
  redis.call("HSET", g.members, id, member.text(row))
end

-- Every member (not the pending ones) as a list of {id, row}, in a fixed order.
local function rows(g)
  local flat, list = redis.call("HGETALL", g.members), {}
  for i = 1, #flat, 2 do
    local row = member.parse(flat[i + 1])
    if row then
      list[#list + 1] = { flat[i], row }
    end
  end
  table.sort(list, function(a, b)
    return a[1] < b[1]
  end)
  return list
end

M.rows = rows

local function longest_rebalance(list)
  local longest = 0
  for _, pair in ipairs(list) do
    longest = math.max(longest, pair[2].rebalance)
  end
  return longest
end

local function vote(g, names, by)
  for _, name in ipairs(names) do
    if redis.call("HINCRBY", g.group, "p:" .. name, by) == 0 then
      redis.call("HDEL", g.group, "p:" .. name)
    end
  end
end

--- Whether somebody with these protocols can be a member.
function M.supports(g, protocol_type, names)
  if g.state == M.EMPTY then
    return protocol_type ~= "" and #names > 0
  end
  if protocol_type ~= g.protocol_type then
    return false
  end
  for _, name in ipairs(names) do
    if tonumber(redis.call("HGET", g.group, "p:" .. name) or 0) == g.size then
      return true
    end
  end
  return false
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

-- The protocol that most members like best, of those that all of them know.
local function choose_protocol(g)
  local votes, best = {}, nil
  for _, pair in ipairs(rows(g)) do
    for _, name in ipairs(member.names(redis.call("HGET", g.protocols, pair[1]))) do
      if tonumber(redis.call("HGET", g.group, "p:" .. name) or 0) == g.size then
        votes[name] = (votes[name] or 0) + 1
        if not best or votes[name] > votes[best] then
          best = name
        end
        break
      end
    end
  end
  return best or ""
end

M.choose_protocol = choose_protocol

-- The leader is somebody whose JoinGroup is here. False when nobody's is.
local function elect(g, list)
  local someone
  for _, pair in ipairs(list) do
    if pair[2].awaiting then
      if pair[1] == g.leader then
        return true
      end
      someone = someone or pair[1]
    end
  end
  if someone then
    g.leader = someone
  end
  return someone ~= nil
end

--- Nothing is left of a member but its commits.
function M.remove(g, id)
  local row = M.row(g, id)
  if not row then
    return
  end
  vote(g, member.names(redis.call("HGET", g.protocols, id)), -1)
  local instance = member.profile(redis.call("HGET", g.profiles, id)).instance
  if instance then
    redis.call("HDEL", g.instances, instance)
  end
  redis.call("HDEL", g.members, id)
  redis.call("HDEL", g.profiles, id)
  redis.call("HDEL", g.protocols, id)
  redis.call("HDEL", g.assignments, id)
  redis.call("ZREM", g.deadlines, id)
  g.size = g.size - 1
  g.awaiting = g.awaiting - (row.awaiting and 1 or 0)
  if g.state == M.COMPLETING or g.state == M.STABLE then
    g.unsynced = g.unsynced - (row.synced and 0 or 1)
  end
  if g.leader == id then
    local rest = rows(g)
    g.leader = rest[1] and rest[1][1] or ""
  end
  g.ring = true
end

--- The id that was handed out is forgotten.
function M.remove_pending(g, id)
  redis.call("HDEL", g.members, id)
  redis.call("ZREM", g.deadlines, id)
  g.pending = g.pending - 1
end

local function all_joined(g)
  return g.size == g.awaiting and g.pending == 0
end

--- The join phase is over: a new generation of those who joined, or of nobody.
function M.complete(g, now_ms)
  redis.call("ZREM", g.deadlines, ":join")
  for _, pair in ipairs(rows(g)) do
    if not pair[2].awaiting then
      local profile = member.profile(redis.call("HGET", g.profiles, pair[1]))
      if not profile.instance then
        M.remove(g, pair[1])
      end
    end
  end
  local list = rows(g)
  if g.size > 0 and not elect(g, list) then
    -- Only static members are left, and all of them are silent: their sessions decide.
    set_deadline(g, ":join", now_ms + longest_rebalance(list))
    return
  end
  g.generation, g.initial, g.fresh, g.since, g.ring = g.generation + 1, 0, 0, now_ms, true
  redis.call("UNLINK", g.assignments)
  if g.size == 0 then
    g.state, g.protocol, g.leader, g.unsynced, g.awaiting = M.EMPTY, "", "", 0, 0
    set_deadline(g, ":offsets", now_ms + M.LOOK_MS)
    return
  end
  g.protocol, g.state = choose_protocol(g), M.COMPLETING
  for _, pair in ipairs(list) do
    local row = pair[2]
    row.awaiting, row.new, row.synced = false, false, false
    M.put(g, pair[1], row)
    M.restart(g, pair[1], row, now_ms)
  end
  g.awaiting, g.unsynced = 0, g.size
  redis.call("ZREM", g.deadlines, ":offsets")
  set_deadline(g, ":sync", now_ms + longest_rebalance(list))
end

--- In the join phase: it is over as soon as everybody is there, unless it is the first one.
function M.try_complete(g, now_ms)
  if g.state == M.PREPARING and g.initial == 0 and all_joined(g) then
    M.complete(g, now_ms)
  end
end

--- The join phase has begun. A group that was Empty waits `delay_ms` for others.
function M.prepare(g, now_ms, delay_ms)
  local first = g.state == M.EMPTY
  local list = rows(g)
  if g.state == M.COMPLETING then
    for _, pair in ipairs(list) do
      if pair[2].synced then
        pair[2].synced = false
        M.put(g, pair[1], pair[2])
        if not pair[2].awaiting then
          M.restart(g, pair[1], pair[2], now_ms)
        end
      end
    end
  end
  redis.call("ZREM", g.deadlines, ":sync")
  g.state, g.initial, g.since, g.unsynced = M.PREPARING, first and 1 or 0, now_ms, 0
  g.began, g.ring = g.began + 1, true
  if first and delay_ms > 0 then
    g.fresh, g.delay, g.step = 0, delay_ms, delay_ms
    g.left = math.max(longest_rebalance(list) - delay_ms, 0)
    set_deadline(g, ":join", now_ms + delay_ms)
  elseif first or all_joined(g) then
    M.complete(g, now_ms)
  else
    set_deadline(g, ":join", now_ms + longest_rebalance(list))
  end
end

--- The members have changed: a rebalance begins, or comes closer to its end.
function M.rebalance(g, now_ms, delay_ms)
  if g.state == M.PREPARING then
    M.try_complete(g, now_ms)
  else
    M.prepare(g, now_ms, delay_ms or 0)
  end
end

--- The same after members were removed.
function M.rebalance_without(g, now_ms)
  if g.state == M.PREPARING then
    M.try_complete(g, now_ms)
  elseif g.state ~= M.EMPTY then
    M.prepare(g, now_ms, 0)
  end
end

--- Somebody new is a member whose JoinGroup is waiting. `m` has id, session, rebalance, type,
--- names, protocols, profile, instance (empty for none).
function M.add(g, m, now_ms)
  if g.size == 0 then
    g.protocol_type = m.type
  end
  if g.leader == "" then
    g.leader = m.id
  end
  if M.is_pending(g, m.id) then
    g.pending = g.pending - 1
  end
  if g.state == M.PREPARING and g.generation == 0 then
    g.fresh = 1
  end
  M.put(g, m.id, { session = m.session, rebalance = m.rebalance, awaiting = true, new = true })
  redis.call("HSET", g.profiles, m.id, m.profile)
  redis.call("HSET", g.protocols, m.id, m.protocols)
  if m.instance ~= "" then
    redis.call("HSET", g.instances, m.instance, m.id)
  end
  vote(g, m.names, 1)
  g.size, g.awaiting = g.size + 1, g.awaiting + 1
  if g.state == M.COMPLETING or g.state == M.STABLE then
    g.unsynced = g.unsynced + 1
  end
  set_deadline(g, m.id, now_ms + NEW_MEMBER_MS)
end

--- A member joins again, maybe with other protocols and timeouts; its JoinGroup is waiting.
function M.update(g, row, m)
  vote(g, member.names(redis.call("HGET", g.protocols, m.id)), -1)
  vote(g, m.names, 1)
  redis.call("HSET", g.protocols, m.id, m.protocols)
  row.session, row.rebalance = m.session, m.rebalance
  if not row.awaiting then
    row.awaiting = true
    g.awaiting = g.awaiting + 1
  end
  if not row.new then
    redis.call("ZREM", g.deadlines, m.id)
  end
  M.put(g, m.id, row)
end

--- A static member has a new id; whoever still uses the old one is fenced.
function M.replace(g, old, m, now_ms)
  local row = M.row(g, old)
  for _, key in ipairs({ g.profiles, g.protocols, g.assignments }) do
    local value = redis.call("HGET", key, old)
    if value then
      redis.call("HDEL", key, old)
      redis.call("HSET", key, m.id, value)
    end
  end
  redis.call("HDEL", g.members, old)
  redis.call("ZREM", g.deadlines, old)
  redis.call("HSET", g.profiles, m.id, m.profile)
  redis.call("HSET", g.instances, m.instance, m.id)
  if g.leader == old then
    g.leader = m.id
  end
  M.put(g, m.id, row)
  M.restart(g, m.id, row, now_ms)
  g.ring = true
  return row
end

--- Old commits are looked for at that moment.
function M.look_at(g, moment)
  set_deadline(g, ":offsets", moment)
end

--- Nobody has looked at the group for so long that no broker can have been there to hear its members:
--- they, and the phase they are in, have their time again.
function M.forgive(g, now_ms)
  local list = rows(g)
  for _, pair in ipairs(list) do
    if redis.call("ZSCORE", g.deadlines, pair[1]) then
      M.restart(g, pair[1], pair[2], now_ms)
    end
  end
  for _, phase in ipairs({ ":join", ":sync" }) do
    if redis.call("ZSCORE", g.deadlines, phase) then
      set_deadline(g, phase, now_ms + longest_rebalance(list))
    end
  end
end

--- A deadline has passed: what follows from that has happened. ":offsets" is the caller's.
function M.expire(g, name, moment, now_ms)
  redis.call("ZREM", g.deadlines, name)
  if name == ":join" then
    if g.state == M.PREPARING and g.initial == 1 and g.fresh == 1 and g.left > 0 then
      local step = math.min(g.delay, g.left)
      g.fresh, g.left, g.step = 0, math.max(g.left - g.step, 0), step
      set_deadline(g, ":join", moment + step)
    elseif g.state == M.PREPARING then
      M.complete(g, now_ms)
    end
  elseif name == ":sync" then
    if g.unsynced > 0 and (g.state == M.COMPLETING or g.state == M.STABLE) then
      for _, pair in ipairs(rows(g)) do
        if not pair[2].synced then
          M.remove(g, pair[1])
        end
      end
      M.rebalance_without(g, now_ms)
    end
  elseif M.is_pending(g, name) then
    M.remove_pending(g, name)
    M.rebalance_when_preparing(g, now_ms)
  else
    M.remove(g, name)
    M.rebalance_without(g, now_ms)
  end
end

--- In the join phase, one fewer to wait for.
function M.rebalance_when_preparing(g, now_ms)
  if g.state == M.PREPARING then
    M.try_complete(g, now_ms)
  end
end

--- The answer to a JoinGroup that is over: every member's metadata for the leader, flat {id,
--- instance, metadata, ...}; nothing for the others. A dynamic member's instance is empty.
function M.roster(g, id)
  local list = {}
  if g.leader == id then
    for _, pair in ipairs(rows(g)) do
      local profile = member.profile(redis.call("HGET", g.profiles, pair[1]))
      local protocols = redis.call("HGET", g.protocols, pair[1])
      list[#list + 1] = pair[1]
      list[#list + 1] = profile.instance or ""
      list[#list + 1] = member.metadata(protocols, g.protocol)
    end
  end
  return list
end

--- The profile of a joining member, as it is stored.
function M.profile(client_id, client_host, instance)
  if instance == "" then
    return pack.pack({ client_id, client_host })
  end
  return pack.pack({ client_id, client_host, instance })
end

return M
