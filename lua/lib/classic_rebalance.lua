--- The rebalance of a classic group: its phases, and what ends them.
---
--- `g` is a group that lib.classic_group has loaded; the script saves it once at the end.
local classic_group = require("lib.classic_group")
local classic_member = require("lib.classic_member")
local classic_membership = require("lib.classic_membership")
local deadlines = require("lib.deadlines")

local M = {}

local function longest_rebalance(list)
  local longest = 0
  for _, pair in ipairs(list) do
    longest = math.max(longest, pair[2].rebalance)
  end
  return longest
end

-- Keep the leader if its JoinGroup waits, else elect a member whose does. Return false if there is
-- none.
local function elect_leader(g, list)
  local candidate
  for _, pair in ipairs(list) do
    if pair[2].awaiting then
      if pair[1] == g.leader then
        return true
      end
      candidate = candidate or pair[1]
    end
  end
  if candidate then
    g.leader = candidate
  end
  return candidate ~= nil
end

-- A pending member is waited for until ":hold".
local function all_joined(g)
  return g.size == g.awaiting
    and (g.pending == 0 or not redis.call("ZSCORE", g.deadlines, ":hold"))
end

--- Complete the join phase: remove dynamic members that did not join, begin a new generation.
function M.complete_join(g, now_ms)
  redis.call("ZREM", g.deadlines, ":join")
  for _, pair in ipairs(classic_group.list_members(g)) do
    if not pair[2].awaiting then
      local client = classic_member.parse_client(redis.call("HGET", g.clients, pair[1]))
      if not client.instance then
        classic_membership.remove_member(g, pair[1])
      end
    end
  end
  local list = classic_group.list_members(g)
  if g.size > 0 and not elect_leader(g, list) then
    -- Only static members are left and none has joined: their session timeouts decide.
    deadlines.set(g.deadlines, ":join", now_ms + longest_rebalance(list))
    return
  end
  g.generation, g.initial, g.extended, g.since, g.notify = g.generation + 1, 0, 0, now_ms, true
  redis.call("UNLINK", g.assignments)
  if g.size == 0 then
    g.state, g.protocol, g.leader, g.unsynced, g.awaiting = classic_group.EMPTY, "", "", 0, 0
    deadlines.set(g.deadlines, deadlines.OFFSETS, now_ms + deadlines.OFFSETS_CHECK_MS)
    return
  end
  g.protocol, g.state = classic_membership.choose_protocol(g), classic_group.COMPLETING
  for _, pair in ipairs(list) do
    local row = pair[2]
    row.awaiting, row.new, row.synced = false, false, false
    classic_group.put_member(g, pair[1], row)
    classic_group.renew_session(g, pair[1], row, now_ms)
  end
  g.awaiting, g.unsynced = 0, g.size
  redis.call("ZREM", g.deadlines, deadlines.OFFSETS)
  deadlines.set(g.deadlines, ":sync", now_ms + longest_rebalance(list))
end

--- Complete the join phase if all members have joined; the first one lasts until its deadline.
function M.try_complete_join(g, now_ms)
  if g.state == classic_group.PREPARING and g.initial == 0 and all_joined(g) then
    M.complete_join(g, now_ms)
  end
end

-- Begin the join phase. A group that was Empty waits `delay_ms` for other members.
local function begin_join(g, now_ms, delay_ms)
  local first = g.state == classic_group.EMPTY
  local list = classic_group.list_members(g)
  if g.state == classic_group.COMPLETING then
    for _, pair in ipairs(list) do
      if pair[2].synced then
        pair[2].synced = false
        classic_group.put_member(g, pair[1], pair[2])
        if not pair[2].awaiting then
          classic_group.renew_session(g, pair[1], pair[2], now_ms)
        end
      end
    end
  end
  redis.call("ZREM", g.deadlines, ":sync")
  g.state, g.initial, g.since, g.unsynced = classic_group.PREPARING, first and 1 or 0, now_ms, 0
  g.rebalances, g.notify = g.rebalances + 1, true
  if first and delay_ms > 0 then
    g.extended, g.delay_ms, g.step_ms = 0, delay_ms, delay_ms
    g.left_ms = math.max(longest_rebalance(list) - delay_ms, 0)
    deadlines.set(g.deadlines, ":join", now_ms + delay_ms)
  elseif first or all_joined(g) then
    M.complete_join(g, now_ms)
  else
    deadlines.set(g.deadlines, ":join", now_ms + longest_rebalance(list))
  end
end

--- Rebalance after a member joined: begin a join phase, or complete the current one if possible.
function M.member_joined(g, now_ms, delay_ms)
  if g.state == classic_group.PREPARING then
    M.try_complete_join(g, now_ms)
  else
    begin_join(g, now_ms, delay_ms or 0)
  end
end

--- Rebalance after members were removed.
function M.members_removed(g, now_ms)
  if g.state == classic_group.PREPARING then
    M.try_complete_join(g, now_ms)
  elseif g.state ~= classic_group.EMPTY then
    begin_join(g, now_ms, 0)
  end
end

--- Renew all sessions and the current phase, after a time in which no broker could receive requests
--- of members. A first join phase, which only its deadline ends, gets its initial delay again.
function M.renew_all_sessions(g, now_ms)
  local list = classic_group.list_members(g)
  for _, pair in ipairs(list) do
    local moment = redis.call("ZSCORE", g.deadlines, pair[1])
    if moment then
      deadlines.set(g.deadlines, pair[1], math.max(tonumber(moment), now_ms + pair[2].session))
    end
  end
  for _, phase in ipairs({ ":join", ":sync" }) do
    if redis.call("ZSCORE", g.deadlines, phase) then
      local again_ms = g.initial == 1 and g.delay_ms or longest_rebalance(list)
      deadlines.set(g.deadlines, phase, now_ms + again_ms)
    end
  end
end

-- The deadline of the join phase: extend a first one if members have joined since, else complete.
local function end_join(g, moment, now_ms)
  if g.state ~= classic_group.PREPARING then
    return
  end
  if g.initial == 1 and g.extended == 1 and g.left_ms > 0 then
    local step_ms = math.min(g.delay_ms, g.left_ms)
    g.extended, g.left_ms, g.step_ms = 0, math.max(g.left_ms - g.step_ms, 0), step_ms
    deadlines.set(g.deadlines, ":join", moment + step_ms)
  else
    M.complete_join(g, now_ms)
  end
end

-- The rebalance timeout after a join phase: remove members that have not sent SyncGroup.
local function end_sync(g, now_ms)
  local has_generation = g.state == classic_group.COMPLETING or g.state == classic_group.STABLE
  if g.unsynced == 0 or not has_generation then
    return
  end
  for _, pair in ipairs(classic_group.list_members(g)) do
    if not pair[2].synced then
      classic_membership.remove_member(g, pair[1])
    end
  end
  M.members_removed(g, now_ms)
end

--- Process an expired deadline other than ":offsets".
function M.expire(g, name, moment, now_ms)
  redis.call("ZREM", g.deadlines, name)
  if name == ":join" then
    end_join(g, moment, now_ms)
  elseif name == ":sync" then
    end_sync(g, now_ms)
  elseif name == ":hold" then
    M.try_complete_join(g, now_ms)
  elseif classic_group.is_pending(g, name) then
    classic_membership.remove_pending(g, name)
    M.try_complete_join(g, now_ms)
  else
    classic_membership.remove_member(g, name)
    M.members_removed(g, now_ms)
  end
end

return M
