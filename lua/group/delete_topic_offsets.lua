--- group.delete_topic_offsets  version 1  writes
--- Delete a group's committed offsets of a topic.
---
--- KEYS     offsets    hash   the group's committed offsets
--- ARGV     fields...  bytes  the topic's fields in it
--- RETURNS  error      int    a lib.codes value
---          deleted    int    number of deleted commits
--- COST     O(fields), at most 0 calls + 1 per fields
--- NOTES    For Redis Cluster, where a topic is deleted slot by slot.
local codes = require("lib.codes")

local offsets = KEYS[1]

-- Write.
local deleted = 0
for from = 1, #ARGV, 1000 do
  deleted = deleted
    + redis.call("HDEL", offsets, unpack(ARGV, from, math.min(from + 999, #ARGV)))
end
return { codes.NONE, deleted }
