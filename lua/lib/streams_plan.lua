--- Derive partition counts, internal topics and tasks from a streams group's topology (KIP-1071).
---
--- A task is "<subtopology>:<partition>": a subtopology has as many as its largest source topic has
--- partitions.
local num = require("lib.num")
local partition_list = require("lib.partition_list")
local streams_topology = require("lib.streams_topology")

local M = {}

-- Tasks of a group, at most: they are assigned in one call. Subtopologies that share topics can
-- have more tasks than these have partitions, whose number is limited: then MAX_SHARED.
local MAX_TASKS, MAX_SHARED = 50000, 3000

M.MISSING_SOURCE_TOPICS, M.INCORRECTLY_PARTITIONED_TOPICS, M.MISSING_INTERNAL_TOPICS = 1, 2, 3

-- Return the names of source topics that do not exist.
local function missing_sources(subs, existing)
  local missing = {}
  for _, sub in ipairs(subs) do
    for _, name in ipairs(sub.sources) do
      if not existing[name] then
        missing[name] = true
      end
    end
  end
  return partition_list.to_list(missing)
end

-- Index the subtopologies: those that write each repartition topic, those that read each topic, and
-- the most partitions that one of a subtopology's source topics has, of those known.
local function index_topics(subs, count_of)
  local writers, readers, most = {}, {}, {}
  for _, sub in ipairs(subs) do
    for _, name in ipairs(sub.sinks) do
      writers[name] = writers[name] or {}
      table.insert(writers[name], sub)
    end
    for _, name in ipairs(sub.inputs) do
      readers[name] = readers[name] or {}
      table.insert(readers[name], sub)
      local count = count_of(name)
      most[sub] = count and math.max(most[sub] or 0, count) or most[sub]
    end
  end
  return writers, readers, most
end

-- Decide the partition counts of repartition topics: the most that a source topic of a subtopology
-- has that writes to the topic. Return whether all could be.
local function decide_repartitions(subs, decided, count_of)
  local open = {}
  for _, sub in ipairs(subs) do
    for _, info in ipairs(sub.repartitions) do
      if info.partitions > 0 then
        decided[info.name] = info.partitions
      else
        open[info.name] = true
      end
    end
  end
  local writers, readers, most = index_topics(subs, count_of)
  local left = partition_list.to_list(open)
  while #left > 0 do
    local rest = {}
    for _, name in ipairs(left) do
      local count
      for _, sub in ipairs(writers[name] or {}) do
        count = most[sub] and math.max(count or 0, most[sub]) or count
      end
      if not count then
        rest[#rest + 1] = name
      end
      decided[name] = count or decided[name]
      for _, sub in ipairs(count and readers[name] or {}) do
        most[sub] = math.max(most[sub] or 0, count)
      end
    end
    if #rest == #left then
      return false
    end
    left = rest
  end
  return true
end

-- Return the common partition count of the topics; nil, and what differs, if it is not the same.
local function common_count(names, count_of)
  local count, parts, same = nil, {}, true
  for _, name in ipairs(names) do
    local each = count_of(name)
    count = count or each
    same = same and each == count
    parts[#parts + 1] = name .. "=" .. num.small(each)
  end
  if same then
    return count
  end
  local listed = table.concat(parts, ", ")
  return nil, "Following topics do not have the same number of partitions: [{" .. listed .. "}]"
end

-- Give the topics of a copartition group one partition count. Return what prevents it, if anything.
local function copartition(group, infos, decided, count_of)
  local external, fixed, open = {}, {}, {}
  table.sort(group)
  for _, name in ipairs(group) do
    local info = infos[name]
    local kind = not info and external or info.partitions > 0 and fixed or open
    kind[#kind + 1] = name
  end
  local count, reason = common_count(#external > 0 and external or fixed, count_of)
  if reason then
    return reason
  end
  for _, name in ipairs(fixed) do
    if decided[name] ~= count then
      return "Number of partitions [" .. num.small(decided[name]) .. "] of repartition topic ["
        .. name .. "] doesn't match number of partitions [" .. num.small(count)
        .. "] of the source topic."
    end
  end
  if not count then
    count = 0
    for _, name in ipairs(open) do
      count = math.max(count, decided[name])
    end
  end
  for _, name in ipairs(open) do
    decided[name] = count
  end
  return nil
end

-- Decide the partition counts of changelog topics: those of the subtopology's tasks.
local function decide_changelogs(subs, plan)
  for _, sub in ipairs(subs) do
    local is_source = partition_list.to_set(sub.inputs)
    for _, info in ipairs(sub.changelogs) do
      if not is_source[info.name] then
        plan.decided[info.name] = plan.tasks[sub.id]
        plan.internal[#plan.internal + 1] = info
      end
    end
  end
end

-- Compare the internal topics with those that exist, and list the missing ones.
local function compare_internal(plan, existing)
  table.sort(plan.internal, function(a, b)
    return a.name < b.name
  end)
  local seen = {}
  for _, info in ipairs(plan.internal) do
    local wanted, found = plan.decided[info.name], existing[info.name]
    if found and found ~= wanted then
      plan.status = M.INCORRECTLY_PARTITIONED_TOPICS
      plan.detail = "Existing topic " .. info.name .. " has different number of partitions: "
        .. "expected " .. num.small(wanted) .. ", found " .. num.small(found)
      plan.missing = {}
      return
    end
    if not found and not seen[info.name] then
      plan.missing[#plan.missing + 1], seen[info.name] = info, true
    end
  end
  if #plan.missing > 0 then
    plan.status = M.MISSING_INTERNAL_TOPICS
    local names = table.concat(streams_topology.names_of(plan.missing), ", ")
    plan.detail = "Internal topics are missing: " .. names
  end
end

local function fail(plan, status, detail)
  plan.status, plan.detail = status, detail
  return plan
end

--- Compare the topology with the topics that exist (name -> partitions). Return a plan: `status`
--- and `detail` of what prevents an assignment, if anything; `tasks`: subtopology -> number of
--- tasks; `decided`: internal topic -> partitions; `missing`: internal topics to create. Tasks and
--- partitions are not known with MISSING_SOURCE_TOPICS, and with topics that are not copartitioned.
--- Return nil for a topology that cannot be valid.
function M.configure(subs, existing)
  local plan = { tasks = {}, decided = {}, missing = {}, internal = {}, detail = "" }
  local missing = missing_sources(subs, existing)
  if #missing > 0 then
    local names = table.concat(missing, ", ")
    return fail(plan, M.MISSING_SOURCE_TOPICS, "Source topics " .. names .. " are missing.")
  end
  local decided = {}
  local function count_of(name)
    return existing[name] or decided[name]
  end
  if not decide_repartitions(subs, decided, count_of) then
    return nil
  end
  local infos = {}
  for _, sub in ipairs(subs) do
    if #sub.inputs == 0 then
      return nil
    end
    for _, info in ipairs(sub.repartitions) do
      infos[info.name], plan.internal[#plan.internal + 1] = info, info
    end
  end
  for _, sub in ipairs(subs) do
    for _, group in ipairs(sub.groups) do
      local reason = copartition(group, infos, decided, count_of)
      if reason then
        return fail(plan, M.INCORRECTLY_PARTITIONED_TOPICS, reason)
      end
    end
  end
  plan.decided = decided
  local total, partitions, seen = 0, 0, {}
  for _, sub in ipairs(subs) do
    local most = 0
    for _, name in ipairs(sub.inputs) do
      most = math.max(most, count_of(name))
      partitions, seen[name] = partitions + (seen[name] and 0 or count_of(name)), true
    end
    plan.tasks[sub.id], total = most, total + most
  end
  local limit = math.min(math.max(partitions, MAX_SHARED), MAX_TASKS)
  if total > limit then
    return fail(plan, M.INCORRECTLY_PARTITIONED_TOPICS, "The topology has " .. num.text(total)
      .. " tasks; a group can have " .. num.small(limit) .. ": use fewer partitions.")
  end
  decide_changelogs(subs, plan)
  compare_internal(plan, existing)
  return plan
end

--- Return whether the tasks of an assignment are of the topology; of any, if its tasks are unknown.
function M.has_tasks(plan, items)
  for _, item in ipairs(plan.status and {} or items) do
    local sub, number = string.match(item, "^%l(%x+):(%d+)$")
    if not (plan.tasks[sub] and tonumber(number) < plan.tasks[sub]) then
      return false
    end
  end
  return true
end

--- List the internal topics to create: name, partitions, replication factor, configs, flat.
function M.list_missing(plan)
  local list = {}
  for _, info in ipairs(plan.missing) do
    list[#list + 1], list[#list + 2] = info.name, num.small(plan.decided[info.name])
    list[#list + 1], list[#list + 2] = info.replication, info.configs
  end
  return list
end

return M
