--- Who is a member of a classic group, with what protocols, and under which instance's name.
---
--- `g` is a group that lib.classic_group has loaded. Votes stand in the group's hash: "p:" and a protocol's
--- name -> how many members know it.
local classic_group = require("lib.classic_group")
local classic_member = require("lib.classic_member")
local pack = require("lib.pack")

local M = {}

-- A new member's JoinGroup may wait so long; then it is thrown out, or comes again.
local NEW_MEMBER_MS = 300000
-- A join phase waits so long for whoever was handed an id last.
local HOLD_MS = 1000

local function vote(g, names, by)
  for _, name in ipairs(names) do
    if redis.call("HINCRBY", g.group, "p:" .. name, by) == 0 then
      redis.call("HDEL", g.group, "p:" .. name)
    end
  end
end

--- Whether somebody with these protocols can be a member.
function M.supports(g, protocol_type, names)
  if g.state == classic_group.EMPTY then
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

--- The protocol that most members like best, of those that all of them know.
function M.choose_protocol(g)
  local votes, best = {}, nil
  for _, pair in ipairs(classic_group.rows(g)) do
    for _, name in ipairs(classic_member.names(redis.call("HGET", g.protocols, pair[1]))) do
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

--- Nothing is left of a member but its commits.
function M.remove(g, id)
  local row = classic_group.row(g, id)
  if not row then
    return
  end
  vote(g, classic_member.names(redis.call("HGET", g.protocols, id)), -1)
  local instance = classic_member.profile(redis.call("HGET", g.clients, id)).instance
  if instance then
    redis.call("HDEL", g.instances, instance)
  end
  redis.call("HDEL", g.members, id)
  redis.call("HDEL", g.clients, id)
  redis.call("HDEL", g.protocols, id)
  redis.call("HDEL", g.assignments, id)
  redis.call("ZREM", g.deadlines, id)
  g.size = g.size - 1
  g.awaiting = g.awaiting - (row.awaiting and 1 or 0)
  if g.state == classic_group.COMPLETING or g.state == classic_group.STABLE then
    g.unsynced = g.unsynced - (row.synced and 0 or 1)
  end
  if g.leader == id then
    -- Until the join phase ends nobody leads; looking for somebody here would be work per member that goes.
    g.leader = ""
  end
  -- Its own JoinGroup may wait. Whoever else waits is rung when a phase begins or ends: of a large
  -- group that stops, each that goes would make all the others look.
  g.ring = g.ring or row.awaiting
end

-- One id less is out; once none is, nobody need be waited for.
local function came(g)
  g.pending = g.pending - 1
  if g.pending == 0 then
    redis.call("ZREM", g.deadlines, ":hold")
  end
end

--- The id is handed out. Its member may come back with it for a session, and a join phase is held for
--- it a moment: that is all a client takes that comes, and many an id is never used, as when the
--- answer was lost or the client has asked another broker meanwhile.
function M.hand_out(g, id, session_ms, now_ms)
  redis.call("HSET", g.members, id, classic_member.PENDING)
  classic_group.set_deadline(g, id, now_ms + session_ms)
  classic_group.set_deadline(g, ":hold", now_ms + HOLD_MS)
  g.pending = g.pending + 1
end

--- The id that was handed out is forgotten.
function M.remove_pending(g, id)
  redis.call("HDEL", g.members, id)
  redis.call("ZREM", g.deadlines, id)
  came(g)
end

--- Somebody new is a member whose JoinGroup is waiting. `m` has id, session, rebalance, type,
--- names, protocols, profile, instance (empty for none).
function M.add(g, m, now_ms)
  if g.size == 0 then
    g.protocol_type, g.leader = m.type, m.id
  end
  if classic_group.is_pending(g, m.id) then
    came(g)
  end
  if g.state == classic_group.PREPARING and g.generation == 0 then
    g.fresh = 1
  end
  classic_group.put(g, m.id, { session = m.session, rebalance = m.rebalance, awaiting = true, new = true })
  redis.call("HSET", g.clients, m.id, m.profile)
  redis.call("HSET", g.protocols, m.id, m.protocols)
  if m.instance ~= "" then
    redis.call("HSET", g.instances, m.instance, m.id)
  end
  vote(g, m.names, 1)
  g.size, g.awaiting = g.size + 1, g.awaiting + 1
  if g.state == classic_group.COMPLETING or g.state == classic_group.STABLE then
    g.unsynced = g.unsynced + 1
  end
  classic_group.set_deadline(g, m.id, now_ms + NEW_MEMBER_MS)
end

--- A member joins again, maybe with other protocols and timeouts; its JoinGroup is waiting.
function M.update(g, row, m)
  vote(g, classic_member.names(redis.call("HGET", g.protocols, m.id)), -1)
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
  classic_group.put(g, m.id, row)
end

--- A static member has a new id; whoever still uses the old one is fenced. It is as little new as its
--- instance, however long it has to wait for its first generation. M.update says what it brings.
function M.replace(g, old, m)
  local row = classic_group.row(g, old)
  row.new = false
  for _, key in ipairs({ g.clients, g.protocols, g.assignments }) do
    local value = redis.call("HGET", key, old)
    if value then
      redis.call("HDEL", key, old)
      redis.call("HSET", key, m.id, value)
    end
  end
  redis.call("HDEL", g.members, old)
  redis.call("ZREM", g.deadlines, old)
  redis.call("HSET", g.clients, m.id, m.profile)
  redis.call("HSET", g.instances, m.instance, m.id)
  if g.leader == old then
    g.leader = m.id
  end
  g.ring = true
  return row
end

--- The profile of a joining member, as it is stored.
function M.profile(client_id, client_host, instance)
  if instance == "" then
    return pack.pack({ client_id, client_host })
  end
  return pack.pack({ client_id, client_host, instance })
end

return M
