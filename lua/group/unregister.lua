--- group.unregister  version 1  writes
--- Remove a deleted group from the registry, unless it was registered again.
---
--- KEYS     groups   hash   encoded group id -> mark; `:version` counts the changes
--- ARGV     group    id     encoded group id
---          mark     bytes  the mark that the caller read
--- RETURNS  error    int    a lib.codes value
---          removed  int    1: it was in the registry under that mark
--- FULL     always: a group is removed
--- COST     O(1), at most 3 calls
local codes = require("lib.codes")

local groups = KEYS[1]
local group, mark = ARGV[1], ARGV[2]

-- Write.
if redis.call("HGET", groups, group) ~= mark then
  return { codes.NONE, 0 }
end
redis.call("HDEL", groups, group)
redis.call("HINCRBY", groups, ":version", 1)
return { codes.NONE, 1 }
