--- log.clean_rewrite  version 1  writes
--- Add a rewritten entry to a log's compacted copy.
---
--- KEYS     log        hash    the partition's state
---          compacted  stream  the compacted copy
--- ARGV     token      text    the pass
---          length     int     entries that the copy must have
---          id         text    the entry's id, unchanged
---          fields...  bytes   its fields and values
--- RETURNS  error      int     a lib.codes value
--- REFUSES  NOT_COORDINATOR
--- FULL     is_small: as for log.clean_copy
--- COST     O(1), at most 3 calls
local clean_swap = require("lib.clean_swap")
local codes = require("lib.codes")

local log, compacted = KEYS[1], KEYS[2]
local token, length, id = ARGV[1], tonumber(ARGV[2]), ARGV[3]

-- Check.
local state = redis.call("HMGET", log, "compacting", "bytes", "entries")
if state[1] ~= token or redis.call("XLEN", compacted) ~= length then
  return { codes.NOT_COORDINATOR }
end
local is_small = clean_swap.is_small(length, state[2], state[3])

-- Write.
redis.call("XADD", compacted, id, unpack(ARGV, 4))
return { codes.NONE }
