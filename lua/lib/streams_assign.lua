--- The assignor of streams groups (KIP-1071): sticky.
---
--- Members are tables with id, process and former (the tasks of the previous target). The result is
--- in `target`: "a<task>" for an active task, "b<task>" for a standby task (lib.partition_owners).
---
--- Members have numbers of active tasks that differ by at most one. A task stays with its member,
--- else it goes to one that has it as a standby task, else to the member with the fewest. A process
--- has a task once: so standby tasks are in other processes than the active one.
local num = require("lib.num")

local M = {}

M.ACTIVE, M.STANDBY = "a", "b"

-- Passes over all standby tasks to improve their balance, at most.
local PASSES = 10

-- List the tasks, ordered by partition: those that read partitions of one number are neighbours.
local function list_tasks(subtopologies)
  local tasks, most = {}, 0
  for _, sub in ipairs(subtopologies) do
    most = math.max(most, sub.count)
  end
  for number = 0, most - 1 do
    for _, sub in ipairs(subtopologies) do
      if number < sub.count then
        tasks[#tasks + 1] = { id = sub.id .. ":" .. num.small(number), sub = sub }
      end
    end
  end
  return tasks
end

-- Order the tasks by subtopology, keeping their order in each.
local function by_subtopology(tasks, subtopologies)
  local lists, ordered = {}, {}
  for _, task in ipairs(tasks) do
    lists[task.sub] = lists[task.sub] or {}
    table.insert(lists[task.sub], task)
  end
  for _, sub in ipairs(subtopologies) do
    for _, task in ipairs(lists[sub] or {}) do
      ordered[#ordered + 1] = task
    end
  end
  return ordered
end

-- Note for each task the members that had it as active, and as standby.
local function note_holders(members, tasks)
  local by_id = {}
  for _, task in ipairs(tasks) do
    by_id[task.id], task.former, task.standby, task.replicas = task, {}, {}, {}
  end
  for _, m in ipairs(members) do
    for _, item in ipairs(m.former) do
      local task = by_id[string.sub(item, 2)]
      if task then
        table.insert(string.sub(item, 1, 1) == M.ACTIVE and task.former or task.standby, m)
      end
    end
  end
end

-- A queue of members by load. Those of one load are in the order in which they reached it.
local function new_queue(members)
  local queue = { low = 0, high = 0, members = members }
  for _, m in ipairs(members) do
    queue[m.load] = queue[m.load] or {}
    table.insert(queue[m.load], m)
    queue.high = math.max(queue.high, m.load)
  end
  return queue
end

-- Return the lowest load up to `last` of a member without the task in its process; nil for none.
local function least_load(members, task, last)
  local least
  for _, m in ipairs(members) do
    if m.load < (least or last + 1) and not (task and m.in_process.holds[task.id]) then
      least = m.load
    end
  end
  return least
end

-- Remove and return the first member with the lowest load that is below `limit`, of those without
-- the task in their process; of all, without a task. Nil if there is none.
local function take_first(queue, task, limit)
  while queue.low <= queue.high and #(queue[queue.low] or {}) == 0 do
    queue.low = queue.low + 1
  end
  local first, last = queue.low, math.min(queue.high, limit - 1)
  if last - first > #queue.members then
    -- The loads are far apart: most of the range is empty.
    first = least_load(queue.members, task, last) or last + 1
  end
  for load = first, last do
    for i, m in ipairs(queue[load] or {}) do
      if not task or not m.in_process.holds[task.id] then
        return table.remove(queue[load], i)
      end
    end
  end
  return nil
end

local function put(queue, m)
  queue[m.load] = queue[m.load] or {}
  table.insert(queue[m.load], m)
  queue.low, queue.high = math.min(queue.low, m.load), math.max(queue.high, m.load)
end

-- Remove the member from its place.
local function withdraw(queue, m)
  for i, other in ipairs(queue[m.load]) do
    if other == m then
      table.remove(queue[m.load], i)
      return
    end
  end
end

local function hold(m, task)
  m.load, m.in_process.holds[task.id] = m.load + 1, true
end

-- Assign each task to one member. `extra` members may have one task more than `share`.
local function assign_active(members, tasks, subtopologies)
  local share, extra = math.floor(#tasks / #members), #tasks % #members
  local function take(m, task)
    if m.load == share then
      extra = extra - 1
    end
    hold(m, task)
    task.active = m
  end
  for _, kind in ipairs({ "former", "standby" }) do
    for _, task in ipairs(tasks) do
      local best
      for _, m in ipairs(task.active and {} or task[kind]) do
        local has_room = m.load < share or m.load == share and extra > 0
        if has_room and (not best or m.load < best.load) then
          best = m
        end
      end
      if best then
        take(best, task)
      end
    end
  end
  local queue = new_queue(members)
  for _, task in ipairs(by_subtopology(tasks, subtopologies)) do
    if not task.active then
      -- There is room for all tasks: so the member with the fewest has room.
      local m = take_first(queue, nil, #tasks + 1)
      take(m, task)
      put(queue, m)
    end
  end
end

-- Let former holders keep or get standby tasks, if their process does not have the task, and they
-- have fewer tasks than `quota`.
local function keep_standby(tasks, kind, quota)
  for _, task in ipairs(tasks) do
    for _, m in ipairs(task[kind]) do
      if task.lacking > 0 and m.load < quota and not m.in_process.holds[task.id] then
        hold(m, task)
        table.insert(task.replicas, m)
        task.lacking = task.lacking - 1
      end
    end
  end
end

-- Give the lacking standby tasks to the members with the fewest tasks. Those of one member's active
-- tasks are placed in turn, and so with several members.
local function fill_standby(queue, tasks)
  local order, lists = {}, {}
  for _, task in ipairs(tasks) do
    if not lists[task.active] then
      lists[task.active] = {}
      order[#order + 1] = lists[task.active]
    end
    table.insert(lists[task.active], task)
  end
  for _, list in ipairs(order) do
    for _, task in ipairs(list) do
      for _ = 1, task.lacking do
        local m = take_first(queue, task, math.huge)
        if not m then
          break
        end
        hold(m, task)
        put(queue, m)
        table.insert(task.replicas, m)
      end
    end
  end
end

-- Move standby tasks to members that have at least two tasks less. Return whether any moved.
local function balance_standby(queue, tasks)
  local moved = false
  for _, task in ipairs(tasks) do
    for i, m in ipairs(task.replicas) do
      local other = take_first(queue, task, m.load - 1)
      if other then
        hold(other, task)
        put(queue, other)
        withdraw(queue, m)
        m.load, m.in_process.holds[task.id] = m.load - 1, nil
        put(queue, m)
        task.replicas[i], moved = other, true
      end
    end
  end
  return moved
end

-- Assign `replicas` standby tasks of each stateful task, or as many as there are other processes.
local function assign_standby(members, all, replicas)
  local tasks, total, processes = {}, #all, 0
  for _, m in ipairs(members) do
    processes = processes + (m.turn == 1 and 1 or 0)
  end
  replicas = math.min(replicas, processes - 1)
  for _, task in ipairs(all) do
    if task.sub.is_stateful then
      tasks[#tasks + 1], task.lacking, total = task, replicas, total + replicas
    end
  end
  keep_standby(tasks, "standby", math.huge)
  keep_standby(tasks, "former", math.ceil(total / #members))
  local queue = new_queue(members)
  fill_standby(queue, tasks)
  for _ = 1, PASSES do
    if not balance_standby(queue, tasks) then
      break
    end
  end
end

-- Order members by id, and then so that each process has its first member before any has its
-- second one: a queue then spreads tasks over processes.
local function order_members(members)
  local processes = {}
  table.sort(members, function(a, b)
    return a.id < b.id
  end)
  for _, m in ipairs(members) do
    local process = processes[m.process] or { size = 0, holds = {} }
    processes[m.process], process.size = process, process.size + 1
    m.in_process, m.turn, m.load, m.target = process, process.size, 0, {}
  end
  table.sort(members, function(a, b)
    if a.turn ~= b.turn then
      return a.turn < b.turn
    end
    return a.id < b.id
  end)
end

--- Compute every member's target. Subtopologies are tables with id, count (of tasks) and
--- is_stateful, ordered. Return the assignor's name, and the number of tasks.
function M.assign(members, subtopologies, replicas)
  order_members(members)
  local tasks = list_tasks(subtopologies)
  if #members == 0 or #tasks == 0 then
    return "sticky", 0
  end
  note_holders(members, tasks)
  assign_active(members, tasks, subtopologies)
  if replicas > 0 then
    assign_standby(members, tasks, replicas)
  end
  for _, task in ipairs(by_subtopology(tasks, subtopologies)) do
    table.insert(task.active.target, M.ACTIVE .. task.id)
    for _, m in ipairs(task.replicas) do
      table.insert(m.target, M.STANDBY .. task.id)
    end
  end
  return "sticky", #tasks
end

return M
