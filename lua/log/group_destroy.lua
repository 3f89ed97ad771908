--- log.group_destroy  version 1  writes
--- Delete the Redis group from the stream.
---
--- KEYS     stream   stream  the partition's records
--- ARGV     group    text    the Redis group's name
--- RETURNS  error    int     a lib.codes value
---          removed  int     1: it existed
--- COST     O(pending), at most 2 calls
local codes = require("lib.codes")

local stream = KEYS[1]
local group = ARGV[1]

-- Write.
if redis.call("EXISTS", stream) == 0 then
  return { codes.NONE, 0 }
end
return { codes.NONE, redis.call("XGROUP", "DESTROY", stream, group) }
