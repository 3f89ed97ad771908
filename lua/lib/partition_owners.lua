--- The owners of a consumer group's partitions (KIP-848) and of a streams group's tasks (KIP-1071).
---
--- A hash has for each owned partition the epoch since when it is owned, a space, and the member
--- that owns it or has not yet revoked it.
---
--- The assignment of a streams group holds "a<task>" for an active task, "b<task>" for a standby
--- task and "c<task>" for a warm-up task; a task is "<subtopology id in hex digits>:<partition>".
--- An active task has one owner in the group: field "a<task>". A process has a task once, whatever
--- its kind: field "<task> <process id>".
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local modern_member = require("lib.modern_member")
local num = require("lib.num")

local M = {}

-- Fields of one HMGET.
local PAGE = 1000

-- Return the fields of these partitions; with a process id, of these items of an assignment.
local function fields_of(list, process)
  if not process then
    return list
  end
  local found = {}
  for _, item in ipairs(list) do
    if string.sub(item, 1, 1) == "a" then
      found[#found + 1] = item
    end
    found[#found + 1] = string.sub(item, 2) .. " " .. process
  end
  return found
end

--- Remove the owner of these partitions; of these tasks, if the member has a process id.
function M.release(g, list, process)
  chunks.call("HDEL", g.owners, fields_of(list, process))
end

--- Make the member the owner of these partitions or tasks, since the epoch of the target
--- assignment.
function M.own(g, id, list, process)
  local flat, owner = {}, num.text(g.assignment_epoch) .. " " .. id
  for _, field in ipairs(fields_of(list, process)) do
    flat[#flat + 1], flat[#flat + 2] = field, owner
  end
  chunks.call("HSET", g.owners, flat)
end

-- Return the set of those fields that no other member owns.
local function free_fields(g, id, fields)
  local free = {}
  for from = 1, #fields, PAGE do
    local last = math.min(from + PAGE - 1, #fields)
    local owners = redis.call("HMGET", g.owners, unpack(fields, from, last))
    for i = from, last do
      local owner = owners[i - from + 1]
      free[fields[i]] = not owner or string.match(owner, "^%d+ (.*)$") == id
    end
  end
  return free
end

--- Return those of the partitions that no other member owns; of the tasks, those that are free for
--- a member of the process.
function M.filter_free(g, id, list, process)
  local fields, found, at = fields_of(list, process), {}, 1
  local free = free_fields(g, id, fields)
  for _, item in ipairs(list) do
    local is_free = free[fields[at]]
    at = at + 1
    if process and string.sub(item, 1, 1) == "a" then
      is_free, at = is_free and free[fields[at]], at + 1
    end
    if is_free then
      found[#found + 1] = item
    end
  end
  return found
end

--- Return whether the member owns the partition or task since that epoch or an earlier one.
function M.has_owned_since(owners, id, field, epoch)
  local since, owner = string.match(redis.call("HGET", owners, field) or "", "^(%d+) (.*)$")
  return owner == id and tonumber(since) <= epoch
end

--- Return whether a member may commit the rows args[from..], a lib.codes value. A row is stream
--- key, offset, leader epoch, topic id, metadata; without rows the member fetches offsets.
--- `topology_of`: the group, if it is a streams group: its topology has the topics' tasks.
--- An older epoch is valid for partitions that the member has owned since then (KIP-1251): the
--- commit was sent before the epoch grew. A static member that left temporarily has epoch -2. As in
--- Kafka, the group instance id is not compared: a member that is replaced loses its member id.
function M.check_commit(members, owners, id, epoch, args, from, topology_of)
  local text = redis.call("HGET", members, id)
  if not text then
    return codes.UNKNOWN_MEMBER_ID
  end
  local current = modern_member.parse_epoch(text)
  if epoch == current then
    return codes.NONE
  end
  if epoch > current or epoch < 0 or #args < from then
    return codes.STALE_MEMBER_EPOCH
  end
  local subtopology_of
  if topology_of then
    local streams_topology = require("lib.streams_topology")
    subtopology_of = streams_topology.readers(redis.call("HGET", topology_of, "topology") or "")
  end
  for i = from, #args, 5 do
    local field = args[i + 3] .. string.match(args[i], ":%d+$")
    if topology_of then
      local topic, number = string.match(args[i], ":([^:]*)(:%d+)$")
      field = "a" .. (subtopology_of[topic] or "") .. number
    end
    if not M.has_owned_since(owners, id, field, epoch) then
      return codes.STALE_MEMBER_EPOCH
    end
  end
  return codes.NONE
end

return M
