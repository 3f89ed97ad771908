--- log.forget_segments  version 1  writes
--- Forget removed segments whose objects are deleted.
---
--- KEYS     deleted_segments  zset   rows of removed segments by the time to delete the object, ms
--- ARGV     rows...           bytes  their rows
--- RETURNS  error             int    a lib.codes value
--- COST     O(rows), at most 1 call
local codes = require("lib.codes")

redis.call("ZREM", KEYS[1], unpack(ARGV))
return { codes.NONE }
