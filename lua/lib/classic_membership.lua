--- The members of a classic group: adding, updating and removing them, and their protocol votes.
---
--- `g` is a group that lib.classic_group has loaded. Votes are fields of the group's hash: "p:" and
--- a protocol's name -> the number of members that support it.
local classic_group = require("lib.classic_group")
local classic_member = require("lib.classic_member")
local deadlines = require("lib.deadlines")

local M = {}

-- Ms that the first JoinGroup of a new member may wait; then the member is removed.
local NEW_MEMBER_MS = 300000
-- Ms that a join phase waits for the member whose id was handed out last.
local HOLD_MS = 1000

local function add_votes(g, names, by)
  for _, name in ipairs(names) do
    if redis.call("HINCRBY", g.group, "p:" .. name, by) == 0 then
      redis.call("HDEL", g.group, "p:" .. name)
    end
  end
end

local function is_supported_by_all(g, name)
  return tonumber(redis.call("HGET", g.group, "p:" .. name) or 0) == g.size
end

--- Return whether a member with these protocols may join.
function M.supports_protocols(g, protocol_type, names)
  if g.state == classic_group.EMPTY then
    return protocol_type ~= "" and #names > 0
  end
  if protocol_type ~= g.protocol_type then
    return false
  end
  for _, name in ipairs(names) do
    if is_supported_by_all(g, name) then
      return true
    end
  end
  return false
end

--- Return the protocol that most members prefer, of those that all members support.
function M.choose_protocol(g)
  local votes, best = {}, nil
  for _, pair in ipairs(classic_group.list_members(g)) do
    for _, name in ipairs(classic_member.names(redis.call("HGET", g.protocols, pair[1]))) do
      if is_supported_by_all(g, name) then
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

--- Remove a member; its commits stay.
function M.remove_member(g, id)
  local row = classic_group.get_member(g, id)
  if not row then
    return
  end
  local protocols = redis.call("HGET", g.protocols, id)
  add_votes(g, classic_member.names(protocols), -1)
  g.bytes = g.bytes - #protocols
  local instance = classic_member.parse_client(redis.call("HGET", g.clients, id)).instance
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
    -- The next leader is elected when the join phase ends: an election per removal is O(members).
    g.leader = ""
  end
  -- Only the removed member's own waiting JoinGroup needs a notification. Other members are
  -- notified when a phase begins or ends: one per removal would wake all of a large group that
  -- stops.
  g.notify = g.notify or row.awaiting
end

local function count_pending_out(g)
  g.pending = g.pending - 1
  if g.pending == 0 then
    redis.call("ZREM", g.deadlines, ":hold")
  end
end

--- Hand out a member id. It is valid for a session; a join phase waits for it HOLD_MS at most: many
--- ids are never used, because the response was lost or the client has asked another broker.
function M.add_pending(g, id, session_ms, now_ms)
  redis.call("HSET", g.members, id, classic_member.PENDING)
  deadlines.set(g.deadlines, id, now_ms + session_ms)
  deadlines.set(g.deadlines, ":hold", now_ms + HOLD_MS)
  g.pending = g.pending + 1
end

--- Invalidate an id that was handed out.
function M.remove_pending(g, id)
  redis.call("HDEL", g.members, id)
  redis.call("ZREM", g.deadlines, id)
  count_pending_out(g)
end

--- Add a member whose JoinGroup waits. `m` has id, session, rebalance, type, names, protocols,
--- client, instance (empty for a dynamic member).
function M.add_member(g, m, now_ms)
  if g.size == 0 then
    g.protocol_type, g.leader = m.type, m.id
  end
  if classic_group.is_pending(g, m.id) then
    count_pending_out(g)
  end
  if g.state == classic_group.PREPARING and g.generation == 0 then
    g.extended = 1
  end
  classic_group.put_member(
    g, m.id, { session = m.session, rebalance = m.rebalance, awaiting = true, new = true }
  )
  redis.call("HSET", g.clients, m.id, m.client)
  redis.call("HSET", g.protocols, m.id, m.protocols)
  if m.instance ~= "" then
    redis.call("HSET", g.instances, m.instance, m.id)
  end
  add_votes(g, m.names, 1)
  g.bytes = g.bytes + #m.protocols
  g.size, g.awaiting = g.size + 1, g.awaiting + 1
  if g.state == classic_group.COMPLETING or g.state == classic_group.STABLE then
    g.unsynced = g.unsynced + 1
  end
  deadlines.set(g.deadlines, m.id, now_ms + NEW_MEMBER_MS)
end

--- Update a member that joins again with its protocols and timeouts; its JoinGroup waits.
function M.update_member(g, row, m)
  local protocols = redis.call("HGET", g.protocols, m.id)
  add_votes(g, classic_member.names(protocols), -1)
  add_votes(g, m.names, 1)
  g.bytes = g.bytes - #protocols + #m.protocols
  redis.call("HSET", g.protocols, m.id, m.protocols)
  row.session, row.rebalance = m.session, m.rebalance
  if not row.awaiting then
    row.awaiting = true
    g.awaiting = g.awaiting + 1
  end
  if not row.new then
    redis.call("ZREM", g.deadlines, m.id)
  end
  classic_group.put_member(g, m.id, row)
end

--- Give a static member a new id and fence the old one. Return its row, not marked as new: the
--- instance is known, however long its JoinGroup waits. M.update_member stores what it sent.
function M.replace_static_member(g, old, m)
  local row = classic_group.get_member(g, old)
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
  redis.call("HSET", g.clients, m.id, m.client)
  redis.call("HSET", g.instances, m.instance, m.id)
  if g.leader == old then
    g.leader = m.id
  end
  g.notify = true
  return row
end

return M
