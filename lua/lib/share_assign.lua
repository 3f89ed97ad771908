--- The assignor of share groups (KIP-932): simple.
---
--- A partition has several members if there are more members than partitions, and a member has
--- several partitions otherwise; both numbers are balanced. With different subscriptions each topic
--- is balanced by itself. Members are tables as in lib.consumer_assign.
local consumer_assign = require("lib.consumer_assign")
local num = require("lib.num")

local M = {}

-- Let members keep former partitions up to what they should have; count each partition's members.
local function keep_former(members, wanted, sharing, holders, counts)
  for _, m in ipairs(members) do
    for _, partition in ipairs(m.former) do
      local held = holders[partition]
      if held and wanted[m] > 0 and counts[partition] < sharing and not held[m] then
        held[m], counts[partition], wanted[m] = true, counts[partition] + 1, wanted[m] - 1
        m.target[#m.target + 1] = partition
      end
    end
  end
end

-- Give each partition the members that it lacks, in turn, from those that lack partitions.
local function fill(members, partitions, wanted, sharing, holders, counts)
  local lacking, turn = {}, 0
  for _, m in ipairs(members) do
    if wanted[m] > 0 then
      lacking[#lacking + 1] = m
    end
  end
  for _, partition in ipairs(partitions) do
    local held, refused = holders[partition], 0
    while counts[partition] < sharing and refused < #lacking do
      turn = turn % #lacking + 1
      local m = lacking[turn]
      if held[m] then
        refused = refused + 1
      else
        held[m], counts[partition], wanted[m] = true, counts[partition] + 1, wanted[m] - 1
        m.target[#m.target + 1], refused = partition, 0
        if wanted[m] == 0 then
          table.remove(lacking, turn)
          turn = turn - 1
        end
      end
    end
  end
end

-- Assign partitions to members that all subscribe to them.
local function assign_shared(members, partitions)
  if #partitions == 0 then
    return
  end
  local sharing = math.ceil(#members / #partitions)
  local total, given = sharing * #partitions, 0
  local wanted, holders, counts = {}, {}, {}
  for i, m in ipairs(members) do
    local upto = math.ceil(total * i / #members)
    wanted[m], given = upto - given, upto
  end
  for _, partition in ipairs(partitions) do
    holders[partition], counts[partition] = {}, 0
  end
  keep_former(members, wanted, sharing, holders, counts)
  fill(members, partitions, wanted, sharing, holders, counts)
end

--- Compute every member's target. Return the assignor's name, and the number of partitions.
function M.assign(members, topics)
  local subscribed, subscriptions, total = consumer_assign.prepare(members, topics)
  local all = {}
  for _, row in ipairs(subscribed) do
    local list = subscriptions == 1 and all or {}
    for number = 0, row.count - 1 do
      list[#list + 1] = row.topic .. ":" .. num.small(number)
    end
    if subscriptions > 1 then
      assign_shared(row.class.members, list)
    end
  end
  if subscriptions == 1 then
    assign_shared(members, all)
  end
  return "simple", total
end

return M
