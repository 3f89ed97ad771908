--- log.append_many  version 1  writes
--- Append several batches to one partition or more.
---
--- KEYS     stream...     stream      nine keys per partition, those of log.append
---          log...        hash        the partition's state
---          index...      zset        sparse index
---          producers...  hash        producer states
---          open...       zset        open transactions
---          dedupe...     hash        known ids
---          old...        hash        known ids of earlier records
---          table...      hash        newest values by key
---          newer...      zset        offsets of newer records by key
--- ARGV     logs...       bytes       for each partition: the topic's id as the callers know it, 32
---                                    hex digits; stamp of log.append; its number of batches; and
---                                    for each of these the number of its arguments, then those of
---                                    log.append, from count on
--- RETURNS  answers       log.append  what log.append returns, one for each batch, in their order
---          reason        bytes       empty, or if a partition failed: its stream's name and the
---                                    error
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID KAFKA_STORAGE_ERROR
--- COST     O(records), at most 1 call + 3 per stream + 1 per producer + what log.append needs per
---          batch
--- NOTES    Each batch is checked after those before it are appended. A log's state is read,
---          written and published once: this is what the script saves. All partitions must be on
---          one server. A rejected batch does not affect others. If the keys of a partition fail,
---          its remaining batches get KAFKA_STORAGE_ERROR. If the server fails, the call fails.
local append = require("lib.append")
local clock = require("lib.clock")
local codes = require("lib.codes")

local now_ms = clock.now_ms()
local answers, at, reason, log = {}, 1, "", nil
local failed = { codes.KAFKA_STORAGE_ERROR, -1, -1, -1, -1, 0 }

-- Return whether an error comes from a partition's keys or arguments, and not from the server.
local function is_partition_error(text)
  for _, words in ipairs({ "WRONGTYPE", "attempt to ", "XADD", "exhausted", "no batch" }) do
    if string.find(text, words, 1, true) then
      return true
    end
  end
  return false
end

-- Append the batches of the partition whose keys begin at KEYS[k]. They begin at ARGV[from]; their
-- replies go after the first `count`. Return the index of the next partition's arguments.
local function fill(k, topic_id, stamp, batches, from, count)
  local refusal
  log, refusal = append.open(KEYS, k, topic_id, stamp, now_ms)
  for i = count + 1, count + batches do
    local last = from + tonumber(ARGV[from])
    -- Write. A rejected batch writes nothing.
    answers[i] = log and append.put(log, ARGV, from + 1, last) or { refusal, -1, -1, -1, -1, 0 }
    from = last + 1
  end
  if log then
    append.close(log)
  end
  return from
end

-- Reject the batches that have no reply after the error `why`, and return as `fill` does. Raise
-- an error of the server.
local function fail(k, why, batches, from, count)
  local text = type(why) == "table" and why.err or why
  if type(text) ~= "string" then
    text = "an error that is no text"  -- never Redis's
  elseif not is_partition_error(text) then
    error(why, 0)
  end
  reason = KEYS[k] .. ": " .. text
  if log then
    append.close(log)
  end
  for i = count + 1, count + batches do
    answers[i] = answers[i] or failed
    from = from + 1 + tonumber(ARGV[from])
  end
  return from
end

-- Check. The counts in ARGV are consistent before anything is written.
local found = 1
for _ = 9, #KEYS, 9 do
  local left = tonumber(ARGV[found + 2])
  found = left and left % 1 == 0 and found + 3
  while found and left > 0 do
    local size = tonumber(ARGV[found])
    left, found = left - 1, size and size >= 0 and found + 1 + size
  end
  if not found then
    break
  end
end
if found ~= #ARGV + 1 then
  error("log.append_many: ARGV are not those of " .. math.floor(#KEYS / 9) .. " partitions", 0)
end

local count = 0
for k = 1, #KEYS - 8, 9 do
  local batches, from = tonumber(ARGV[at + 2]), at + 3
  log = nil
  local done, found = pcall(fill, k, ARGV[at], ARGV[at + 1] == "1", batches, from, count)
  at = done and found or fail(k, found, batches, from, count)
  count = count + batches
end
return { answers, reason }
