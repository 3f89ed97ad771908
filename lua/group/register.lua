--- group.register  version 1  writes
--- Add a group to the registry, unless it is in it.
---
--- KEYS     groups  hash   encoded group id -> mark; `:version` counts the changes
--- ARGV     group   id     encoded group id
---          most    int=0  groups that there may be, 0: any number
--- RETURNS  error   int    a lib.codes value
---          added   int    1: it was not in the registry
--- REFUSES  GROUP_MAX_SIZE_REACHED
--- FULL     is_bounded: few new groups (lib.growth)
--- COST     O(1), at most 4 calls
--- NOTES    Call it before the group's first write: the deletion of a topic reads the registry to
---          find the groups that have committed offsets. The mark is new at each registration.
local codes = require("lib.codes")
local growth = require("lib.growth")
local num = require("lib.num")

local groups = KEYS[1]
local group, most = ARGV[1], tonumber(ARGV[2])

-- Check.
if redis.call("HEXISTS", groups, group) == 1 then
  return { codes.NONE, 0 }
end
local count = redis.call("HLEN", groups)
if most > 0 and count > most then
  return { codes.GROUP_MAX_SIZE_REACHED, 0 }
end
local is_bounded = count < growth.GROUPS

-- Write.
local version = redis.call("HINCRBY", groups, ":version", 1)
redis.call("HSET", groups, group, num.text(version))
return { codes.NONE, 1 }
