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

-- The topics of all, in order, each with its partitions' count and its class: the members that read
-- it, in the order of `members`. Topics that the same members read share one.
local function readers(members, kinds)
  local by_topic, list, classes = {}, {}, {}
  for number, kind in ipairs(kinds) do
    for topic, count in pairs(kind.subscribed) do
      local row = by_topic[topic]
      if not row then
        row = { topic = topic, count = count, kinds = {} }
        by_topic[topic], list[#list + 1] = row, row
      end
      row.kinds[#row.kinds + 1] = number
    end
  end
  table.sort(list, function(a, b)
    return a.topic < b.topic
  end)
  for _, row in ipairs(list) do
    local name = table.concat(row.kinds, ",")
    if not classes[name] then
      local class, reads = { members = {} }, {}
      for _, number in ipairs(row.kinds) do
        reads[kinds[number]] = true
        table.insert(kinds[number].classes, class)
      end
      for _, m in ipairs(members) do
        if reads[m.kind] then
          table.insert(class.members, m)
        end
      end
      classes[name] = class
    end
    row.class = classes[name]
  end
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
    local at, count = 0, #row.class.members
    for i, m in ipairs(row.class.members) do
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

-- The first of a class's members that have least. Those before it have more than `level` until one
-- of them loses something: so a search goes on where the last one ended.
local function least(class)
  local members = class.members
  for i = class.level and class.at or #members + 1, #members do
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

-- A member has one partition less.
local function unload(m)
  m.load = m.load - 1
  for _, class in ipairs(m.kind.classes) do
    if class.level and m.load <= class.level then
      class.level = nil
    end
  end
end

-- They read different topics: each keeps what it has; the rest, and what is too much, goes to
-- whoever of a topic's readers has least.
local function uneven(members, topics)
  local holder, rows = {}, {}
  for _, m in ipairs(members) do
    m.load = 0
    for _, partition in ipairs(m.before) do
      local topic, number = string.match(partition, "^(%x+):(%d+)$")
      if not holder[partition] and tonumber(number) < (m.kind.subscribed[topic] or 0) then
        holder[partition], m.load = m, m.load + 1
      end
    end
  end
  for _, row in ipairs(topics) do
    for number = 0, row.count - 1 do
      local partition = row.topic .. ":" .. num.small(number)
      rows[#rows + 1] = { partition, row.class }
      if not holder[partition] then
        local m = least(row.class)
        holder[partition], m.load = m, m.load + 1
      end
    end
  end
  for _ = 1, PASSES do
    local moved = false
    for _, row in ipairs(rows) do
      local from, to = holder[row[1]], least(row[2])
      if to.load + 1 < from.load then
        unload(from)
        holder[row[1]], to.load, moved = to, to.load + 1, true
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
  local votes, chosen, known, kinds, total = {}, "uniform", {}, {}, 0
  for _, m in ipairs(members) do
    local like = m.names .. " " .. m.regex
    if not known[like] then
      known[like] = { subscribed = subscription(m, topics), classes = {} }
      kinds[#kinds + 1] = known[like]
    end
    m.kind, m.target = known[like], {}
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
  elseif #kinds == 1 then
    even(members, topics_read)
  elseif #kinds > 1 then
    uneven(members, topics_read)
  end
  return chosen, total
end

return M
