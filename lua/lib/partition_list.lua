--- Lists of partitions, and their encoding.
---
--- A partition is "<topic id>:<number>"; several are encoded as "<topic id>:0,1,2;<topic id>:5".
--- The tasks of a streams group (lib.partition_owners) are encoded in the same way.
local M = {}

--- Encode partitions.
function M.encode(list)
  local by_topic, order = {}, {}
  for _, partition in ipairs(list) do
    local topic, number = string.match(partition, "^(%x+):(%d+)$")
    if topic then
      if not by_topic[topic] then
        by_topic[topic] = {}
        order[#order + 1] = topic
      end
      local numbers = by_topic[topic]
      numbers[#numbers + 1] = number
    end
  end
  for i, topic in ipairs(order) do
    order[i] = topic .. ":" .. table.concat(by_topic[topic], ",")
  end
  return table.concat(order, ";")
end

--- Decode partitions.
function M.decode(text)
  local list = {}
  for topic, numbers in string.gmatch(text, "(%x+):([%d,]+)") do
    for number in string.gmatch(numbers, "%d+") do
      list[#list + 1] = topic .. ":" .. number
    end
  end
  return list
end

--- Concatenate two encoded lists.
function M.concat(one, other)
  if other == "" then
    return one
  end
  local list = M.decode(one)
  for _, partition in ipairs(M.decode(other)) do
    list[#list + 1] = partition
  end
  return M.encode(list)
end

--- Return a list as a set.
function M.to_set(list)
  local found = {}
  for _, item in ipairs(list) do
    found[item] = true
  end
  return found
end

--- Return the items of a set, ordered.
function M.to_list(set)
  local list = {}
  for item in pairs(set) do
    list[#list + 1] = item
  end
  table.sort(list)
  return list
end

--- Return the items of `list` that are (or are not) in `set`.
function M.filter(list, set, wanted)
  local found = {}
  for _, item in ipairs(list) do
    if (set[item] == true) == wanted then
      found[#found + 1] = item
    end
  end
  return found
end
return M
