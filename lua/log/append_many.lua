--- log.append_many  version 1  writes
--- Each of several batches, for one partition or more, stands in its log, or nothing of it does.
---
--- KEYS     stream...     stream  as in log.append, and so are the next four: five for each partition
---          log...        hash    the partition's state
---          index...      zset    sparse index
---          producers...  hash    what is remembered of producers
---          open...       zset    open transactions
--- ARGV     logs...       bytes   for each partition: the topic the callers believe in, 32 hex digits;
---                                1 for LogAppendTime, else 0; how many batches it gets; and for each
---                                of these the number of its arguments, then those: what log.append
---                                is given from count on
--- RETURNS  answers       list    one a batch, in their order: what log.append returns for it
---          reason        bytes   where one partition's keys do not hold what they should: its stream's
---                                name, and what Redis said; else empty
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID KAFKA_STORAGE_ERROR
--- COST     O(records), at most 1 call + 3 per stream + 1 per producer + what log.append needs per batch
--- NOTES    The batches are judged one after another, each seeing those before it. A log's state is
---          read and written once, and its waiting readers are told once: that is what this saves.
---          Partitions can share a call where one server has them all. A refusal is one's own; so is
---          a failure for the sake of its keys, KAFKA_STORAGE_ERROR for the batch and those behind it
---          in its partition. What fails for the server's sake fails the call.
local append = require("lib.append")
local clock = require("lib.clock")
local codes = require("lib.codes")

local now_ms = clock.now_ms()
local answers, at, reason, log = {}, 1, "", nil
local failed = { codes.KAFKA_STORAGE_ERROR, -1, -1, -1, -1, 0 }

-- Whether an error is for the sake of a partition's keys, and not of the server.
local function is_own(text)
  for _, words in ipairs({ "WRONGTYPE", "attempt to ", "XADD", "exhausted", "no batch" }) do
    if string.find(text, words, 1, true) then
      return true
    end
  end
  return false
end

-- The partition whose keys begin at KEYS[k] has its batches; these begin at ARGV[from], and their
-- answers stand behind the first `count`. Returns where the next partition's arguments begin.
local function fill(k, topic_id, stamp, batches, from, count)
  local refusal
  log, refusal = append.open(KEYS, k, topic_id, stamp, now_ms)
  for i = count + 1, count + batches do
    local last = from + tonumber(ARGV[from])
    -- Write. A batch that is refused has written nothing.
    answers[i] = log and append.put(log, ARGV, from + 1, last) or { refusal, -1, -1, -1, -1, 0 }
    from = last + 1
  end
  if log then
    append.close(log)
  end
  return from
end

-- The same where `why` made that impossible for the first batch that has no answer yet: it and those
-- behind it fail.
local function fail(k, why, batches, from, count)
  local text = type(why) == "table" and why.err or why
  if type(text) ~= "string" then
    text = "an error that is no text"  -- never Redis's
  elseif not is_own(text) then
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

-- Check. What ARGV says of its own parts is known to hold before the first of them is written.
local found = 1
for _ = 1, #KEYS, 5 do
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
  error("log.append_many: ARGV are not those of " .. #KEYS / 5 .. " partitions", 0)
end

local count = 0
for k = 1, #KEYS, 5 do
  local batches, from = tonumber(ARGV[at + 2]), at + 3
  log = nil
  local done, found = pcall(fill, k, ARGV[at], ARGV[at + 1] == "1", batches, from, count)
  at = done and found or fail(k, found, batches, from, count)
  count = count + batches
end
return { answers, reason }
