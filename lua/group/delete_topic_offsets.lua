--- group.delete_topic_offsets  version 1  writes
--- Delete a group's committed offsets of a topic.
---
--- KEYS     offsets    hash   the group's committed offsets
--- ARGV     fields...  bytes  the topic's fields in it
--- RETURNS  error      int    a lib.codes value
---          deleted    int    number of deleted commits
--- COST     O(fields), at most 0 calls + 1 per fields
--- NOTES    For Redis Cluster, where a topic is deleted slot by slot.
local chunks = require("lib.chunks")
local codes = require("lib.codes")

local offsets = KEYS[1]

-- Write.
return { codes.NONE, chunks.call("HDEL", offsets, ARGV) }
