--- The assignor of streams groups (KIP-1071): sticky.
---
--- Members are tables with id, process and former (the tasks of the previous target). The result is
--- in `target`: "a<task>" for an active task, "b<task>" for a standby task (lib.task_owners).
---
--- Members have numbers of active tasks that differ by at most one. A task stays with its member,
--- else it goes to one that has it as a standby task, else to the member with the fewest. A process
--- has a task once: so standby tasks are in other processes than the active one.
local num = require("lib.num")

local M = {}

M.ACTIVE, M.STANDBY = "a", "b"

-- Passes over all standby tasks to improve their balance, at most.
local PASSES = 10

local function by_id(a, b)
  return a.id < b.id
end

-- List the tasks: ordered by partition, so that partitions of one number stay together, or else by
-- subtopology.
local function list_tasks(subtopologies, by_partition)
  local tasks = {}
  for at, sub in ipairs(subtopologies) do
    for number = 0, sub.count - 1 do
      tasks[#tasks + 1] = {
        id = sub.id .. ":" .. num.small(number), at = at, number = number, sub = sub,
      }
    end
  end
  if by_partition then
    table.sort(tasks, function(a, b)
      if a.number ~= b.number then
        return a.number < b.number
      end
      return a.at < b.at
    end)
  end
  return tasks
end

-- Return the members that had the task as active, and as standby: task id -> list of members.
local function former_holders(members)
  local active, standby = {}, {}
  for _, m in ipairs(members) do
    for _, item in ipairs(m.former) do
      local kind, task = string.match(item, "^(%l)(.*)$")
      local holders = kind == M.ACTIVE and active or standby
      holders[task] = holders[task] or {}
      table.insert(holders[task], m)
    end
  end
  return active, standby
end

local function no_rank()
  return 0
end

-- Return that of the allowed members which has the fewest tasks; of these that with the lowest
-- rank, then that whose process has the fewest for its size, then the first.
local function least_loaded(members, is_allowed, rank)
  local best, best_rank, best_load
  rank = rank or no_rank
  for _, m in ipairs(members) do
    if is_allowed(m) and (not best or m.load <= best.load) then
      local its_rank, load = rank(m), m.in_process.load / m.in_process.size
      local is_better = not best or m.load < best.load or its_rank < best_rank
        or its_rank == best_rank and load < best_load
      if is_better then
        best, best_rank, best_load = m, its_rank, load
      end
    end
  end
  return best
end

local function give(holder, m, task)
  holder[task.id] = holder[task.id] or {}
  table.insert(holder[task.id], m)
  m.load, m.in_process.load = m.load + 1, m.in_process.load + 1
  m.in_process.holds[task.id] = true
end

-- Assign each task to one member. `extra` members may have one task more than `share`.
local function assign_active(members, subtopologies, former, standby, chosen)
  local tasks = list_tasks(subtopologies, true)
  local share, extra = math.floor(#tasks / #members), #tasks % #members
  local function has_room(m)
    return m.load < share or m.load == share and extra > 0
  end
  local function take(m, task)
    if m.load == share then
      extra = extra - 1
    end
    give(chosen, m, task)
  end
  for _, holders in ipairs({ former, standby }) do
    for _, task in ipairs(tasks) do
      if not chosen[task.id] then
        local m = least_loaded(holders[task.id] or {}, has_room)
        if m then
          take(m, task)
        end
      end
    end
  end
  for _, task in ipairs(list_tasks(subtopologies, false)) do
    if not chosen[task.id] then
      take(least_loaded(members, has_room), task)
    end
  end
  return #tasks
end

-- Let former holders keep or get a standby task, if their process does not have it and they have
-- fewer tasks than `quota`, if one is given.
local function keep_standby(tasks, holders, chosen, quota)
  for _, task in ipairs(tasks) do
    for _, m in ipairs(holders[task.id] or {}) do
      local has_room = not quota or m.load < quota
      if task.lacking > 0 and has_room and not m.in_process.holds[task.id] then
        give(chosen, m, task)
        task.lacking = task.lacking - 1
      end
    end
  end
end

-- Move standby tasks to members that have at least two tasks less. Return whether any moved.
local function balance_standby(members, tasks, chosen)
  local moved = false
  for _, task in ipairs(tasks) do
    local function may_take(m)
      return not m.in_process.holds[task.id]
    end
    for i, m in ipairs(chosen[task.id] or {}) do
      local other = least_loaded(members, may_take)
      if other and other.load + 1 < m.load then
        m.load, m.in_process.load = m.load - 1, m.in_process.load - 1
        m.in_process.holds[task.id] = nil
        give(chosen, other, task)
        chosen[task.id][i], moved = table.remove(chosen[task.id]), true
      end
    end
  end
  return moved
end

-- Assign `replicas` standby tasks of each stateful task, or as many as there are other processes.
-- The standby tasks of one process's active tasks are spread over several members.
local function assign_standby(members, subtopologies, replicas, former, standby, active, chosen)
  local tasks, total = {}, 0
  for _, task in ipairs(list_tasks(subtopologies, true)) do
    total = total + (task.sub.is_stateful and replicas + 1 or 1)
    if task.sub.is_stateful then
      tasks[#tasks + 1] = task
      task.lacking = replicas
    end
  end
  keep_standby(tasks, standby, chosen)
  keep_standby(tasks, former, chosen, math.ceil(total / #members))
  for i = #tasks, 1, -1 do
    local task = tasks[i]
    local backups = active[task.id][1].in_process.backups
    local function may_take(m)
      return not m.in_process.holds[task.id]
    end
    local function rank(m)
      return backups[m] or 0
    end
    for _ = 1, task.lacking do
      local m = least_loaded(members, may_take, rank)
      if not m then
        break
      end
      give(chosen, m, task)
      backups[m] = (backups[m] or 0) + 1
    end
  end
  for _ = 1, PASSES do
    if not balance_standby(members, tasks, chosen) then
      break
    end
  end
end

--- Compute every member's target. Subtopologies are tables with id, count (of tasks) and
--- is_stateful, ordered. Return the assignor's name, and the number of tasks.
function M.assign(members, subtopologies, replicas)
  local processes = {}
  table.sort(members, by_id)
  for _, m in ipairs(members) do
    local process = processes[m.process] or { load = 0, size = 0, holds = {}, backups = {} }
    processes[m.process] = process
    process.size, m.in_process, m.load, m.target = process.size + 1, process, 0, {}
  end
  local former, standby = former_holders(members)
  local active, replica = {}, {}
  local total = 0
  if #members > 0 then
    total = assign_active(members, subtopologies, former, standby, active)
    if replicas > 0 then
      assign_standby(members, subtopologies, replicas, former, standby, active, replica)
    end
  end
  local tasks = list_tasks(subtopologies, false)
  for _, row in ipairs({ { M.ACTIVE, active }, { M.STANDBY, replica } }) do
    for _, task in ipairs(tasks) do
      for _, m in ipairs(row[2][task.id] or {}) do
        m.target[#m.target + 1] = row[1] .. task.id
      end
    end
  end
  return "sticky", total
end

return M
