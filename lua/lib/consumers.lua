--- Groups whose broker does the assigning (KIP-848): their members, and who gets which partition.
---
--- One hash a group. ":epoch" grows whenever members or topics change; ":version" is the topics table's
--- that was looked at last, ":topics" what it said; any other field is a member: packed words and
--- lists. A partition is "<topic id>:<number>".
local num = require("lib.num")
local pack = require("lib.pack")

local M = {}

local WORDS = { "instance", "rack", "client_id", "client_host", "assignor", "regex" }
local NUMBERS = { "epoch", "previous", "rebalance", "revoke_by" }
local LISTS = { "names", "assigned", "revoking", "target" }

local function read_member(text)
  local list, m, at = pack.unpack(text), {}, 1
  for _, name in ipairs(WORDS) do
    m[name], at = list[at], at + 1
  end
  for _, name in ipairs(NUMBERS) do
    m[name], at = tonumber(list[at]), at + 1
  end
  for _, name in ipairs(LISTS) do
    m[name], at = pack.unpack(list[at]), at + 1
  end
  return m
end

--- The group: epoch, version, topics (text) and members by id.
function M.load(consumers)
  local flat, g = redis.call("HGETALL", consumers), { epoch = 0, version = "", topics = "" }
  g.members, g.order = {}, {}
  for i = 1, #flat, 2 do
    local name = string.match(flat[i], "^:(%l+)$")
    if name == "epoch" then
      g.epoch = tonumber(flat[i + 1])
    elseif name then
      g[name] = flat[i + 1]
    else
      g.members[flat[i]] = read_member(flat[i + 1])
      g.order[#g.order + 1] = flat[i]
    end
  end
  table.sort(g.order)
  return g
end

--- Whether the member has all that it should, at the group's epoch, and nothing is new.
function M.is_settled(consumers, id, instance, epoch, version)
  local row = redis.call("HMGET", consumers, id, ":epoch", ":version")
  if not row[1] or tonumber(row[2]) ~= epoch or row[3] ~= version then
    return false
  end
  local m = read_member(row[1])
  return m.epoch == epoch and #m.revoking == 0 and #m.assigned == #m.target and m.instance == instance
end

--- The member is stored.
function M.put(consumers, id, m)
  local list = {}
  for _, name in ipairs(WORDS) do
    list[#list + 1] = m[name]
  end
  for _, name in ipairs(NUMBERS) do
    list[#list + 1] = num.text(m[name])
  end
  for _, name in ipairs(LISTS) do
    list[#list + 1] = pack.pack(m[name])
  end
  redis.call("HSET", consumers, id, pack.pack(list))
end

--- A list as a set.
function M.set(list)
  local found = {}
  for _, item in ipairs(list) do
    found[item] = true
  end
  return found
end

--- The items of `list` that are (or are not) in `set`.
function M.pick(list, set, wanted)
  local found = {}
  for _, item in ipairs(list) do
    if (set[item] == true) == wanted then
      found[#found + 1] = item
    end
  end
  return found
end

-- What a member subscribes to: topic id -> partitions.
local function subscription(m, topics)
  local found = {}
  local function take(name)
    local topic = topics.by_name[name]
    if topic then
      found[topic[1]] = topic[2]
    end
  end
  for _, name in ipairs(m.names) do
    take(name)
  end
  for _, name in ipairs(topics.by_regex[m.regex] or {}) do
    take(name)
  end
  return found
end

-- Contiguous ranges of each topic, in the order of the members.
local function range(members, order, subscribed)
  local by_topic, ids = {}, {}
  for _, id in ipairs(order) do
    for topic, count in pairs(subscribed[id]) do
      if not by_topic[topic] then
        by_topic[topic] = { count = count }
        ids[#ids + 1] = topic
      end
      by_topic[topic][#by_topic[topic] + 1] = id
    end
  end
  table.sort(ids)
  for _, topic in ipairs(ids) do
    local row, at = by_topic[topic], 0
    for i, id in ipairs(row) do
      local share = math.floor(row.count / #row) + (i <= row.count % #row and 1 or 0)
      for number = at, at + share - 1 do
        local target = members[id].target
        target[#target + 1] = topic .. ":" .. num.text(number)
      end
      at = at + share
    end
  end
end

-- Everybody as many as everybody else, each keeping what it has as far as that allows.
local function uniform(members, order, subscribed, before)
  local all, eligible = {}, {}
  for _, id in ipairs(order) do
    for topic, count in pairs(subscribed[id]) do
      for number = 0, count - 1 do
        local partition = topic .. ":" .. num.text(number)
        if not eligible[partition] then
          eligible[partition] = {}
          all[#all + 1] = partition
        end
        eligible[partition][id] = true
      end
    end
  end
  table.sort(all)
  local share, extra = math.floor(#all / #order), #all % #order
  local taken = {}
  for _, id in ipairs(order) do
    local target, room = members[id].target, share
    if extra > 0 and #M.pick(before[id], taken, false) > share then
      room, extra = share + 1, extra - 1
    end
    for _, partition in ipairs(before[id]) do
      local may = eligible[partition] and eligible[partition][id] and not taken[partition]
      if may and #target < room then
        target[#target + 1] = partition
        taken[partition] = true
      end
    end
  end
  for _, partition in ipairs(all) do
    if not taken[partition] then
      local best
      for _, id in ipairs(order) do
        if eligible[partition][id]
          and (not best or #members[id].target < #members[best].target) then
          best = id
        end
      end
      local target = members[best].target
      target[#target + 1] = partition
    end
  end
end

--- Every member has its target for the topics there are.
function M.assign(g, topics)
  local subscribed, before, votes, chosen = {}, {}, {}, "uniform"
  for _, id in ipairs(g.order) do
    local m = g.members[id]
    subscribed[id], before[id], m.target = subscription(m, topics), m.target, {}
    local assignor = m.assignor ~= "" and m.assignor or "uniform"
    votes[assignor] = (votes[assignor] or 0) + 1
    if votes[assignor] > (votes[chosen] or 0) then
      chosen = assignor
    end
  end
  g.assignor = chosen
  if #g.order == 0 then
    return
  end
  if chosen == "range" then
    range(g.members, g.order, subscribed)
  else
    uniform(g.members, g.order, subscribed, before)
  end
end

--- The member comes as near to its target as others let it. Returns whether something changed.
function M.reconcile(g, id, owned, now_ms)
  local m = g.members[id]
  local target = M.set(m.target)
  local changed = false
  local leaving = M.pick(m.assigned, target, false)
  if #leaving > 0 then
    for _, partition in ipairs(leaving) do
      m.revoking[#m.revoking + 1] = partition
    end
    m.assigned = M.pick(m.assigned, target, true)
    m.revoke_by = now_ms + m.rebalance
    changed = true
  end
  if #m.revoking > 0 then
    if not owned or #M.pick(m.revoking, owned, true) > 0 then
      return changed
    end
    m.revoking, changed = {}, true
  end
  if m.epoch ~= g.epoch then
    m.previous, m.epoch, changed = m.epoch, g.epoch, true
  end
  local held = {}
  for other, row in pairs(g.members) do
    if other ~= id then
      for _, list in ipairs({ row.assigned, row.revoking }) do
        for _, partition in ipairs(list) do
          held[partition] = true
        end
      end
    end
  end
  local has = M.set(m.assigned)
  for _, partition in ipairs(m.target) do
    if not has[partition] and not held[partition] then
      m.assigned[#m.assigned + 1] = partition
      changed = true
    end
  end
  return changed
end

return M
