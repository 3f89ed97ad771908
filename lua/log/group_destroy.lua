--- log.group_destroy  version 1  writes
--- Delete the Redis group from the stream.
---
--- KEYS     stream   stream  the partition's records
--- ARGV     group    text    the Redis group's name
--- RETURNS  error    int     a lib.codes value
---          removed  int     1: it existed, and is deleted
---          more     int     1: entries are still pending: call again
--- COST     O(1000), at most 3 calls
--- NOTES    A call removes 1,000 pending entries: to free all of them in one is long work.
local codes = require("lib.codes")

local stream = KEYS[1]
local group = ARGV[1]
local STEP = 1000

if redis.call("EXISTS", stream) == 0 then
  return { codes.NONE, 0, 0 }
end
local page = redis.pcall("XPENDING", stream, group, "-", "+", STEP)

-- Write.
if page.err or #page < STEP then
  return { codes.NONE, redis.call("XGROUP", "DESTROY", stream, group), 0 }
end
local ids = {}
for i, row in ipairs(page) do
  ids[i] = row[1]
end
redis.call("XACK", stream, group, unpack(ids))
return { codes.NONE, 0, 1 }
