--- Who should get which partition, in a group whose broker decides it.
---
--- Members are tables with id, instance, assignor, names, regex (text, as stored) and before (the
--- partitions it should have had until now). What they get is in `target`.
local num = require("lib.num")
local pack = require("lib.pack")

local M = {}

-- So often a group of unlike subscriptions is looked over for a better balance.
local PASSES = 10

-- What somebody with these words subscribes to: topic id -> partitions.
local function subscription(m, topics)
  local found = {}
  local function take(name)
    local topic = topics.by_name[name]
    if topic then
      found[topic[1]] = topic[2]
    end
  end
  for _, name in ipairs(pack.unpack(m.names)) do
    take(name)
  end
  for _, name in ipairs(topics.by_regex[m.regex] or {}) do
    take(name)
  end
  return found
end

-- The topics of all, in order, each with its partitions' count and the members that read it, which
-- are in the order of `members`.
local function readers(members, kinds)
  local by_topic, list = {}, {}
  for _, m in ipairs(kinds == 1 and { members[1] } or members) do
    for topic, count in pairs(m.subscribed) do
      if not by_topic[topic] then
        by_topic[topic] = { topic = topic, count = count, members = kinds == 1 and members or {} }
        list[#list + 1] = by_topic[topic]
      end
      if kinds > 1 then
        table.insert(by_topic[topic].members, m)
      end
    end
  end
  table.sort(list, function(a, b)
    return a.topic < b.topic
  end)
  return list
end

local function by_id(a, b)
  return a.id < b.id
end

-- Static members first, by their instances.
local function by_instance(a, b)
  if a.instance ~= b.instance then
    return b.instance == "" or (a.instance ~= "" and a.instance < b.instance)
  end
  return a.id < b.id
end

-- Contiguous ranges of each topic.
local function range(topics)
  for _, row in ipairs(topics) do
    local at, count = 0, #row.members
    for i, m in ipairs(row.members) do
      local share = math.floor(row.count / count) + (i <= row.count % count and 1 or 0)
      for number = at, at + share - 1 do
        m.target[#m.target + 1] = row.topic .. ":" .. num.small(number)
      end
      at = at + share
    end
  end
end

-- All read the same: as many each, give or take one, and each keeps what it can.
local function even(members, topics)
  local all, open = {}, {}
  for _, row in ipairs(topics) do
    for number = 0, row.count - 1 do
      local partition = row.topic .. ":" .. num.small(number)
      all[#all + 1], open[partition] = partition, true
    end
  end
  local share, extra = math.floor(#all / #members), #all % #members
  for _, m in ipairs(members) do
    m.room = share
    for _, partition in ipairs(m.before) do
      if #m.target == m.room and m.room == share and extra > 0 and open[partition] then
        m.room, extra = share + 1, extra - 1
      end
      if #m.target < m.room and open[partition] then
        m.target[#m.target + 1] = partition
        open[partition] = nil
      end
    end
  end
  local hungry = {}
  for _, m in ipairs(members) do
    if m.room == share and extra > 0 then
      m.room, extra = share + 1, extra - 1
    end
    if #m.target < m.room then
      hungry[#hungry + 1] = m
    end
  end
  local turn = 1
  for _, partition in ipairs(all) do
    if open[partition] then
      local m = hungry[turn]
      m.target[#m.target + 1] = partition
      if #m.target == m.room then
        table.remove(hungry, turn)
      else
        turn = turn + 1
      end
      turn = turn > #hungry and 1 or turn
    end
  end
end

local function least(members)
  local best = members[1]
  for _, m in ipairs(members) do
    if m.load < best.load then
      best = m
    end
  end
  return best
end

-- They read different topics: each keeps what it has; the rest, and what is too much, goes to
-- whoever of a topic's readers has least.
local function uneven(members, topics)
  local holder, rows = {}, {}
  for _, m in ipairs(members) do
    m.load = 0
    for _, partition in ipairs(m.before) do
      local topic, number = string.match(partition, "^(%x+):(%d+)$")
      if not holder[partition] and tonumber(number) < (m.subscribed[topic] or 0) then
        holder[partition], m.load = m, m.load + 1
      end
    end
  end
  for _, row in ipairs(topics) do
    for number = 0, row.count - 1 do
      local partition = row.topic .. ":" .. num.small(number)
      rows[#rows + 1] = { partition, row.members }
      if not holder[partition] then
        local m = least(row.members)
        holder[partition], m.load = m, m.load + 1
      end
    end
  end
  for _ = 1, PASSES do
    local moved = false
    for _, row in ipairs(rows) do
      local from, to = holder[row[1]], least(row[2])
      if to.load + 1 < from.load then
        holder[row[1]], from.load, to.load, moved = to, from.load - 1, to.load + 1, true
      end
    end
    if not moved then
      break
    end
  end
  for _, row in ipairs(rows) do
    local target = holder[row[1]].target
    target[#target + 1] = row[1]
  end
end

--- Everybody has a target. Returns the assignor that most of those who named one asked for, and the number of partitions.
function M.assign(members, topics)
  local votes, chosen, known, kinds, total = {}, "uniform", {}, 0, 0
  for _, m in ipairs(members) do
    local like = m.names .. " " .. m.regex
    if not known[like] then
      known[like], kinds = subscription(m, topics), kinds + 1
    end
    m.subscribed, m.target = known[like], {}
    if m.assignor ~= "" then
      votes[m.assignor] = (votes[m.assignor] or 0) + 1
    end
  end
  for assignor, count in pairs(votes) do
    if count > (votes[chosen] or 0) then
      chosen = assignor
    end
  end
  table.sort(members, chosen == "range" and by_instance or by_id)
  local topics_read = readers(members, kinds)
  for _, row in ipairs(topics_read) do
    total = total + row.count
  end
  if chosen == "range" then
    range(topics_read)
  elseif kinds == 1 then
    even(members, topics_read)
  elseif kinds > 1 then
    uneven(members, topics_read)
  end
  return chosen, total
end

return M
