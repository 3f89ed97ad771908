--- How a classic group moves from one state to the next.
---
--- `g` is a group that lib.classic_group has loaded; the script saves it once at the end.
local classic_group = require("lib.classic_group")
local classic_member = require("lib.classic_member")
local classic_membership = require("lib.classic_membership")

local M = {}

local function longest_rebalance(list)
  local longest = 0
  for _, pair in ipairs(list) do
    longest = math.max(longest, pair[2].rebalance)
  end
  return longest
end

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

-- Whoever was just handed an id is waited for.
local function all_joined(g)
  return g.size == g.awaiting
    and (g.pending == 0 or not redis.call("ZSCORE", g.deadlines, ":hold"))
end

--- The join phase is over: a new generation of those who joined, or of nobody.
function M.complete(g, now_ms)
  redis.call("ZREM", g.deadlines, ":join")
  for _, pair in ipairs(classic_group.rows(g)) do
    if not pair[2].awaiting then
      local profile = classic_member.profile(redis.call("HGET", g.clients, pair[1]))
      if not profile.instance then
        classic_membership.remove(g, pair[1])
      end
    end
  end
  local list = classic_group.rows(g)
  if g.size > 0 and not elect(g, list) then
    -- Only static members are left, and all of them are silent: their sessions decide.
    classic_group.set_deadline(g, ":join", now_ms + longest_rebalance(list))
    return
  end
  g.generation, g.initial, g.fresh, g.since, g.ring = g.generation + 1, 0, 0, now_ms, true
  redis.call("UNLINK", g.assignments)
  if g.size == 0 then
    g.state, g.protocol, g.leader, g.unsynced, g.awaiting = classic_group.EMPTY, "", "", 0, 0
    classic_group.set_deadline(g, ":offsets", now_ms + classic_group.LOOK_MS)
    return
  end
  g.protocol, g.state = classic_membership.choose_protocol(g), classic_group.COMPLETING
  for _, pair in ipairs(list) do
    local row = pair[2]
    row.awaiting, row.new, row.synced = false, false, false
    classic_group.put(g, pair[1], row)
    classic_group.restart(g, pair[1], row, now_ms)
  end
  g.awaiting, g.unsynced = 0, g.size
  redis.call("ZREM", g.deadlines, ":offsets")
  classic_group.set_deadline(g, ":sync", now_ms + longest_rebalance(list))
end

--- In the join phase: it is over as soon as everybody is there, unless it is the first one.
function M.try_complete(g, now_ms)
  if g.state == classic_group.PREPARING and g.initial == 0 and all_joined(g) then
    M.complete(g, now_ms)
  end
end

--- The join phase has begun. A group that was Empty waits `delay_ms` for others.
function M.prepare(g, now_ms, delay_ms)
  local first = g.state == classic_group.EMPTY
  local list = classic_group.rows(g)
  if g.state == classic_group.COMPLETING then
    for _, pair in ipairs(list) do
      if pair[2].synced then
        pair[2].synced = false
        classic_group.put(g, pair[1], pair[2])
        if not pair[2].awaiting then
          classic_group.restart(g, pair[1], pair[2], now_ms)
        end
      end
    end
  end
  redis.call("ZREM", g.deadlines, ":sync")
  g.state, g.initial, g.since, g.unsynced = classic_group.PREPARING, first and 1 or 0, now_ms, 0
  g.began, g.ring = g.began + 1, true
  if first and delay_ms > 0 then
    g.fresh, g.delay, g.step = 0, delay_ms, delay_ms
    g.left = math.max(longest_rebalance(list) - delay_ms, 0)
    classic_group.set_deadline(g, ":join", now_ms + delay_ms)
  elseif first or all_joined(g) then
    M.complete(g, now_ms)
  else
    classic_group.set_deadline(g, ":join", now_ms + longest_rebalance(list))
  end
end

--- The members have changed: a rebalance begins, or comes closer to its end.
function M.begin(g, now_ms, delay_ms)
  if g.state == classic_group.PREPARING then
    M.try_complete(g, now_ms)
  else
    M.prepare(g, now_ms, delay_ms or 0)
  end
end

--- The same after members were removed.
function M.without(g, now_ms)
  if g.state == classic_group.PREPARING then
    M.try_complete(g, now_ms)
  elseif g.state ~= classic_group.EMPTY then
    M.prepare(g, now_ms, 0)
  end
end

--- Nobody has looked at the group for so long that no broker can have been there to hear its members:
--- they, and the phase they are in, have their time again. A first join phase, which nobody can end
--- before its time, has the time it began with.
function M.forgive(g, now_ms)
  local list = classic_group.rows(g)
  for _, pair in ipairs(list) do
    local moment = redis.call("ZSCORE", g.deadlines, pair[1])
    if moment then
      classic_group.set_deadline(g, pair[1], math.max(tonumber(moment), now_ms + pair[2].session))
    end
  end
  for _, phase in ipairs({ ":join", ":sync" }) do
    if redis.call("ZSCORE", g.deadlines, phase) then
      local again_ms = g.initial == 1 and g.delay or longest_rebalance(list)
      classic_group.set_deadline(g, phase, now_ms + again_ms)
    end
  end
end

--- A deadline has passed: what follows from that has happened. ":offsets" is the caller's.
function M.expire(g, name, moment, now_ms)
  redis.call("ZREM", g.deadlines, name)
  if name == ":join" then
    if g.state == classic_group.PREPARING and g.initial == 1 and g.fresh == 1 and g.left > 0 then
      local step = math.min(g.delay, g.left)
      g.fresh, g.left, g.step = 0, math.max(g.left - g.step, 0), step
      classic_group.set_deadline(g, ":join", moment + step)
    elseif g.state == classic_group.PREPARING then
      M.complete(g, now_ms)
    end
  elseif name == ":sync" then
    if g.unsynced > 0 and (g.state == classic_group.COMPLETING or g.state == classic_group.STABLE) then
      for _, pair in ipairs(classic_group.rows(g)) do
        if not pair[2].synced then
          classic_membership.remove(g, pair[1])
        end
      end
      M.without(g, now_ms)
    end
  elseif name == ":hold" then
    M.try_complete(g, now_ms)
  elseif classic_group.is_pending(g, name) then
    classic_membership.remove_pending(g, name)
    M.try_complete(g, now_ms)
  else
    classic_membership.remove(g, name)
    M.without(g, now_ms)
  end
end

return M
