--- log.clean_copy  version 1  writes
--- Copy ranges of a log's entries to its compacted copy, with their ids.
---
--- KEYS     stream     stream  the partition's records
---          log        hash    the partition's state
---          compacted  stream  the compacted copy
--- ARGV     token      text    the pass
---          length     int     entries that the copy must have
---          from...    text    the first id of a range
---          to...      text    the last id of a range
--- RETURNS  error      int     a lib.codes value
---          copied     int     entries copied
--- REFUSES  NOT_COORDINATOR
--- FULL     is_small: one copy of 64 MiB at a time, which replaces a larger log
--- COST     O(entries), at most 3 calls + 100000 per from
--- NOTES    NOT_COORDINATOR: another pass has started, or a failover lost entries of the copy. The
---          caller, which has read the entries, keeps a call small. It adds entries with too many
---          fields for a script itself. Other such entries have no offset and are dropped.
local clean_swap = require("lib.clean_swap")
local codes = require("lib.codes")
local entry_limits = require("lib.entry_limits")

local stream, log, compacted = KEYS[1], KEYS[2], KEYS[3]
local token, length = ARGV[1], tonumber(ARGV[2])

-- Check.
local state = redis.call("HMGET", log, "compacting", "bytes", "entries")
if state[1] ~= token or redis.call("XLEN", compacted) ~= length then
  return { codes.NOT_COORDINATOR, 0 }
end
local is_small = clean_swap.is_small(length, state[2], state[3])

-- Write.
local copied = 0
for i = 3, #ARGV, 2 do
  for _, row in ipairs(redis.call("XRANGE", stream, ARGV[i], ARGV[i + 1])) do
    if #row[2] <= entry_limits.MAX then
      redis.call("XADD", compacted, row[1], unpack(row[2]))
      copied = copied + 1
    end
  end
end
return { codes.NONE, copied }
