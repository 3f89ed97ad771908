--- log.put  version 1  writes
--- A rewritten entry stands in the log's compacted twin.
---
--- KEYS     log        hash    the partition's state
---          compacted  stream  the twin
--- ARGV     token      bytes   who compacts
---          id         bytes   the entry's id, as it was
---          fields...  bytes   its fields and values
--- RETURNS  error      int     a lib.codes value
--- REFUSES  NOT_COORDINATOR
--- COST     O(1), at most 2 calls
local codes = require("lib.codes")

local log, compacted = KEYS[1], KEYS[2]
local token, id = ARGV[1], ARGV[2]

-- Check. Refusals live here.
if redis.call("HGET", log, "compacting") ~= token then
  return { codes.NOT_COORDINATOR }
end

-- Write.
redis.call("XADD", compacted, id, unpack(ARGV, 3))
return { codes.NONE }
