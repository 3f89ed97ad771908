--- group.register  version 1  writes
--- The group stands in the registry, under a mark that nobody has seen yet.
---
--- KEYS     groups   hash   encoded group id -> mark; `:version` counts the changes
--- ARGV     group    bytes  encoded group id
--- RETURNS  error    int    a lib.codes value
---          version  int    the registry's version, the group's mark
--- COST     O(1), at most 2 calls
--- NOTES    Comes before the group's first write, so that whoever deletes a topic knows the group.
local codes = require("lib.codes")
local num = require("lib.num")

local groups = KEYS[1]
local group = ARGV[1]

-- Write.
local version = redis.call("HINCRBY", groups, ":version", 1)
redis.call("HSET", groups, group, num.text(version))
return { codes.NONE, version }
