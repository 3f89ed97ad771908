--- log.clean_copy  version 1  writes
--- Entries of the log stand in its compacted twin too, under their own ids.
---
--- KEYS     stream     stream  the partition's records
---          log        hash    the partition's state
---          compacted  stream  the twin
--- ARGV     token      bytes   who compacts
---          held       int     entries that it has put into the twin so far
---          from...    bytes   the first id of a range
---          to...      bytes   the last id of a range
--- RETURNS  error      int     a lib.codes value
---          carried    int     entries carried
--- REFUSES  NOT_COORDINATOR
--- COST     O(entries), at most 3 calls + 100000 per from
--- NOTES    NOT_COORDINATOR: somebody else compacts by now, or a failover has lost a part of the twin. The
---          caller keeps a call small: it has seen the entries. Those
---          that no script can add it adds itself; others like them have no offset, and go.
local codes = require("lib.codes")
local entry_limits = require("lib.entry_limits")

local stream, log, compacted = KEYS[1], KEYS[2], KEYS[3]
local token, held = ARGV[1], tonumber(ARGV[2])

-- Check. Refusals live here.
if redis.call("HGET", log, "compacting") ~= token or redis.call("XLEN", compacted) ~= held then
  return { codes.NOT_COORDINATOR, 0 }
end

-- Write.
local carried = 0
for i = 3, #ARGV, 2 do
  for _, row in ipairs(redis.call("XRANGE", stream, ARGV[i], ARGV[i + 1])) do
    if #row[2] <= entry_limits.MAX then
      redis.call("XADD", compacted, row[1], unpack(row[2]))
      carried = carried + 1
    end
  end
end
return { codes.NONE, carried }
