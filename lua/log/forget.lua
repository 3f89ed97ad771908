--- log.forget  version 2  writes
--- Producers that have been silent for too long are forgotten, some of them at a time.
---
--- KEYS     producers   hash   producer id -> epoch, last five batches, transaction
--- ARGV     cursor      bytes  where to go on, `0` at the beginning
---          silence_ms  int    how long a producer is remembered without a batch
---          ids_from    int    from this producer id on they are of writers that may come back
---          keep_ms     int    and how long these are remembered
--- RETURNS  error       int    a lib.codes value
---          cursor      bytes  where to go on, `0` at the end
---          removed     int    producers forgotten
--- COST     O(1,000), at most 2 calls + 1 per thousand
--- NOTES    A producer with an open transaction is never forgotten.
local codes = require("lib.codes")
local clock = require("lib.clock")
local producer = require("lib.producer")

local producers = KEYS[1]
local cursor, silence_ms = ARGV[1], tonumber(ARGV[2])
local ids_from, keep_ms = tonumber(ARGV[3]), tonumber(ARGV[4])

local page = redis.call("HSCAN", producers, cursor, "COUNT", 1000)
local now_ms, silent = clock.now_ms(), {}
for i = 1, #page[2], 2 do
  local state = producer.read(page[2][i + 1])
  local patience_ms = tonumber(page[2][i]) < ids_from and silence_ms or math.max(silence_ms, keep_ms)
  if state.time <= now_ms - patience_ms and not producer.is_open(state) then
    silent[#silent + 1] = page[2][i]
  end
end

-- Write.
for from = 1, #silent, 1000 do
  redis.call("HDEL", producers, unpack(silent, from, math.min(from + 999, #silent)))
end
return { codes.NONE, page[1], #silent }
