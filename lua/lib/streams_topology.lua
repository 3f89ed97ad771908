--- The topology of a streams group (KIP-1071): its subtopologies and their topics.
---
--- Encoded, a topology is a packed list of subtopologies, ordered by id. Each is packed: its id in
--- hex digits, source topics, repartition sink topics, repartition source topics, changelog topics,
--- copartition groups; each a packed list. A repartition or changelog topic is packed: name,
--- partitions (0: to be computed), replication factor, packed configs. A copartition group is a
--- packed list of source topics.
local pack = require("lib.pack")
local partition_list = require("lib.partition_list")

local M = {}

local function decode_infos(text)
  local list = {}
  for _, row in ipairs(pack.unpack(text)) do
    local cells = pack.unpack(row)
    list[#list + 1] = {
      name = cells[1], partitions = tonumber(cells[2]), replication = cells[3], configs = cells[4],
    }
  end
  return list
end

--- Return the names of internal topics, after those in `names`.
function M.names_of(infos, names)
  names = names or {}
  for _, info in ipairs(infos) do
    names[#names + 1] = info.name
  end
  return names
end

--- Decode a topology.
function M.decode(text)
  local list = {}
  for _, row in ipairs(pack.unpack(text)) do
    local cells = pack.unpack(row)
    local sub = {
      id = cells[1], sources = pack.unpack(cells[2]), sinks = pack.unpack(cells[3]),
      repartitions = decode_infos(cells[4]), changelogs = decode_infos(cells[5]), groups = {},
    }
    for _, group in ipairs(pack.unpack(cells[6])) do
      sub.groups[#sub.groups + 1] = pack.unpack(group)
    end
    -- All topics that its tasks read.
    sub.inputs = #sub.repartitions == 0 and sub.sources
      or M.names_of(sub.repartitions, pack.unpack(cells[2]))
    list[#list + 1] = sub
  end
  return list
end

-- Add the names in `list` to a set.
local function add(set, list)
  for _, name in ipairs(list) do
    set[name] = true
  end
end

--- Return the topics whose partitions decide about the tasks: sources and internal topics, ordered.
function M.topics(subs)
  local names = {}
  for _, sub in ipairs(subs) do
    add(names, sub.inputs)
    add(names, M.names_of(sub.changelogs))
  end
  return partition_list.to_list(names)
end

--- Return the subtopology that reads each topic.
function M.readers(text)
  local found = {}
  for _, sub in ipairs(M.decode(text)) do
    for _, name in ipairs(sub.inputs) do
      found[name] = sub.id
    end
  end
  return found
end

return M
