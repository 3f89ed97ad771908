--- log.expire_producers  version 1  writes
--- Delete the state of producers that have been silent too long, about 1,000 checked per call.
---
--- KEYS     producers   hash   producer id -> epoch, last five batches, transaction
--- ARGV     cursor      bytes  where to continue, `0` at the start
---          silence_ms  int    how long a producer's state is kept after its last batch
---          classes...  int    pairs: a producer id, and the min ms to keep states from that id on
--- RETURNS  error       int    a lib.codes value
---          cursor      bytes  where to continue, `0` at the end
---          removed     int    producers deleted
--- FULL     always: producers are removed
--- COST     O(1,000), at most 2 calls + 1 per thousand
--- NOTES    The state of a producer with an open transaction is never deleted.
local codes = require("lib.codes")
local chunks = require("lib.chunks")
local clock = require("lib.clock")
local producer_state = require("lib.producer_state")

local producers = KEYS[1]
local cursor, silence_ms = ARGV[1], tonumber(ARGV[2])

local function patience_of(id)
  local patience_ms = silence_ms
  for i = 3, #ARGV, 2 do
    if id >= tonumber(ARGV[i]) then
      patience_ms = math.max(patience_ms, tonumber(ARGV[i + 1]))
    end
  end
  return patience_ms
end

local page = redis.call("HSCAN", producers, cursor, "COUNT", 1000)
local now_ms, silent = clock.now_ms(), {}
for i = 1, #page[2], 2 do
  local state = producer_state.read(page[2][i + 1])
  local expires = state.time + patience_of(tonumber(page[2][i]))
  if expires <= now_ms and not producer_state.is_open(state) then
    silent[#silent + 1] = page[2][i]
  end
end

-- Write.
chunks.call("HDEL", producers, silent)
return { codes.NONE, page[1], #silent }
