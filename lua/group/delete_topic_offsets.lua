--- group.delete_topic_offsets  version 1  writes
--- Delete a group's committed offsets of a topic.
---
--- KEYS     offsets     hash  the group's committed offsets
--- ARGV     prefix      text  the topic's fields in it, without the partition's number
---          partitions  int   partitions of the topic
--- RETURNS  error       int   a lib.codes value
---          deleted     int   number of deleted commits
--- FULL     always: commits are removed
--- COST     O(partitions), or O(commits) if these are fewer, at most 2 calls + 1 per thousand
--- NOTES    For many groups, and for Redis Cluster, where a topic is deleted slot by slot.
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local num = require("lib.num")

local offsets = KEYS[1]
local prefix, partitions = ARGV[1], tonumber(ARGV[2])

-- The fields of a small group are fewer than the partitions.
local fields = {}
if redis.call("HLEN", offsets) <= partitions then
  for _, field in ipairs(redis.call("HKEYS", offsets)) do
    if string.sub(field, 1, #prefix) == prefix and string.find(field, "^%d+$", #prefix + 1) then
      fields[#fields + 1] = field
    end
  end
else
  for number = 0, partitions - 1 do
    fields[#fields + 1] = prefix .. num.small(number)
  end
end

-- Write.
return { codes.NONE, chunks.call("HDEL", offsets, fields) }
