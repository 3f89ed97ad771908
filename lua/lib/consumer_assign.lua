--- The assignors of consumer groups (KIP-848): uniform and range.
---
--- Members are tables with id, instance, assignor, names, regex (text, as stored) and former (the
--- partitions of the previous target). The result is in `target`.
local num = require("lib.num")
local pack = require("lib.pack")

local M = {}

-- Passes over all partitions to improve the balance of different subscriptions, at most.
local PASSES = 10
-- In a class of more members the one with the lowest load is remembered.
local FEW = 8

-- Return the topics that the member subscribes to: topic id -> partitions.
local function subscribed_topics(m, topics)
  local found = {}
  local function add(name)
    local topic = topics.by_name[name]
    if topic then
      found[topic[1]] = topic[2]
    end
  end
  for _, name in ipairs(m.topics or pack.unpack(m.names)) do
    add(name)
  end
  for _, name in ipairs(topics.by_regex[m.regex] or {}) do
    add(name)
  end
  return found
end

-- Return all subscribed topics, ordered by id, each with its number of partitions and its class:
-- the members that subscribe to it, in the order of `members`. Topics with the same subscribers
-- share one.
local function list_topics(members, subscriptions)
  local by_topic, list, classes = {}, {}, {}
  for number, subscription in ipairs(subscriptions) do
    for topic, count in pairs(subscription.topics) do
      local row = by_topic[topic]
      if not row then
        row = { topic = topic, count = count, subscriptions = {} }
        by_topic[topic], list[#list + 1] = row, row
      end
      row.subscriptions[#row.subscriptions + 1] = number
    end
  end
  table.sort(list, function(a, b)
    return a.topic < b.topic
  end)
  for _, row in ipairs(list) do
    local name = table.concat(row.subscriptions, ",")
    if not classes[name] then
      local class = { members = {} }
      for _, number in ipairs(row.subscriptions) do
        table.insert(subscriptions[number].classes, class)
      end
      classes[name] = class
    end
    row.class = classes[name]
  end
  for _, m in ipairs(members) do
    for _, class in ipairs(m.subscription.classes) do
      class.members[#class.members + 1] = m
    end
  end
  for _, subscription in ipairs(subscriptions) do
    subscription.large = {}
    for _, class in ipairs(subscription.classes) do
      if #class.members > FEW then
        table.insert(subscription.large, class)
      end
    end
  end
  return list
end

local function by_id(a, b)
  return a.id < b.id
end

-- Order static members first, by their instances.
local function by_instance(a, b)
  if a.instance ~= b.instance then
    return b.instance == "" or (a.instance ~= "" and a.instance < b.instance)
  end
  return a.id < b.id
end

-- Assign contiguous ranges of each topic.
local function assign_ranges(topics)
  for _, row in ipairs(topics) do
    local at, count = 0, #row.class.members
    for i = 1, math.min(count, row.count) do
      local m = row.class.members[i]
      local share = math.floor(row.count / count) + (i <= row.count % count and 1 or 0)
      for number = at, at + share - 1 do
        m.target[#m.target + 1] = row.topic .. ":" .. num.small(number)
      end
      at = at + share
    end
  end
end

-- Assign members with equal subscriptions numbers of partitions that differ by at most one, keeping
-- former partitions where possible.
local function assign_evenly(members, topics)
  local all, free = {}, {}
  for _, row in ipairs(topics) do
    for number = 0, row.count - 1 do
      local partition = row.topic .. ":" .. num.small(number)
      all[#all + 1], free[partition] = partition, true
    end
  end
  local share, extra = math.floor(#all / #members), #all % #members
  for _, m in ipairs(members) do
    m.limit = share
    for _, partition in ipairs(m.former) do
      if #m.target == m.limit and m.limit == share and extra > 0 and free[partition] then
        m.limit, extra = share + 1, extra - 1
      end
      if #m.target < m.limit and free[partition] then
        m.target[#m.target + 1] = partition
        free[partition] = nil
      end
    end
  end
  local below_limit = {}
  for _, m in ipairs(members) do
    if m.limit == share and extra > 0 then
      m.limit, extra = share + 1, extra - 1
    end
    if #m.target < m.limit then
      below_limit[#below_limit + 1] = m
    end
  end
  local turn = 1
  for _, partition in ipairs(all) do
    if free[partition] then
      local m = below_limit[turn]
      m.target[#m.target + 1] = partition
      if #m.target == m.limit then
        table.remove(below_limit, turn)
      else
        turn = turn + 1
      end
      turn = turn > #below_limit and 1 or turn
    end
  end
end

-- Return the first of a class's members with the lowest load. Earlier members have more than
-- `level` until one of them loses a partition: so a search continues where the last one ended.
local function find_least_loaded(class)
  local members = class.members
  for i = class.level and #members > FEW and class.at or #members + 1, #members do
    if members[i].load == class.level then
      class.at = i
      return members[i]
    end
  end
  class.at, class.level = 1, members[1].load
  for i, m in ipairs(members) do
    if m.load < class.level then
      class.at, class.level = i, m.load
    end
  end
  return members[class.at]
end

-- Take one partition off the member's load.
local function reduce_load(m)
  m.load = m.load - 1
  for _, class in ipairs(m.subscription.large) do
    if class.level and m.load <= class.level then
      class.level = nil
    end
  end
end

-- Assign members with different subscriptions: each keeps its former partitions, all other
-- partitions and those above the balance go to the topic's subscriber with the lowest load.
local function assign_by_load(members, topics)
  local owner, rows = {}, {}
  for _, m in ipairs(members) do
    m.load = 0
    for _, partition in ipairs(m.former) do
      local topic, number = string.match(partition, "^(%x+):(%d+)$")
      if not owner[partition] and tonumber(number) < (m.subscription.topics[topic] or 0) then
        owner[partition], m.load = m, m.load + 1
      end
    end
  end
  for _, row in ipairs(topics) do
    for number = 0, row.count - 1 do
      local partition = row.topic .. ":" .. num.small(number)
      rows[#rows + 1] = { partition, row.class }
      if not owner[partition] then
        local m = find_least_loaded(row.class)
        owner[partition], m.load = m, m.load + 1
      end
    end
  end
  for _ = 1, PASSES do
    local moved = false
    for _, row in ipairs(rows) do
      local from, to = owner[row[1]], find_least_loaded(row[2])
      if to.load + 1 < from.load then
        reduce_load(from)
        owner[row[1]], to.load, moved = to, to.load + 1, true
      end
    end
    if not moved then
      break
    end
  end
  for _, row in ipairs(rows) do
    local target = owner[row[1]].target
    target[#target + 1] = row[1]
  end
end

-- Return the assignor that most members name.
local function choose_assignor(members)
  local votes, chosen = {}, "uniform"
  for _, m in ipairs(members) do
    if m.assignor ~= "" then
      votes[m.assignor] = (votes[m.assignor] or 0) + 1
    end
  end
  for assignor, count in pairs(votes) do
    if count > (votes[chosen] or 0) then
      chosen = assignor
    end
  end
  return chosen
end

--- Order the members by `compare`, by id without it, and give each an empty target. Return the
--- topics that they subscribe to (list_topics), the number of different subscriptions, and of
--- partitions.
function M.prepare(members, topics, compare)
  local known, subscriptions, total = {}, {}, 0
  for _, m in ipairs(members) do
    local text = m.names .. " " .. m.regex
    if not known[text] then
      known[text] = { topics = subscribed_topics(m, topics), classes = {} }
      subscriptions[#subscriptions + 1] = known[text]
    end
    m.subscription, m.target = known[text], {}
  end
  table.sort(members, compare or by_id)
  local subscribed = list_topics(members, subscriptions)
  for _, row in ipairs(subscribed) do
    total = total + row.count
  end
  return subscribed, #subscriptions, total
end

--- Compute every member's target. Return the assignor that most members name, and the number of
--- partitions.
function M.assign(members, topics)
  local chosen = choose_assignor(members)
  local compare = chosen == "range" and by_instance or by_id
  local subscribed, subscriptions, total = M.prepare(members, topics, compare)
  if chosen == "range" then
    assign_ranges(subscribed)
  elseif subscriptions == 1 then
    assign_evenly(members, subscribed)
  elseif subscriptions > 1 then
    assign_by_load(members, subscribed)
  end
  return chosen, total
end

return M
