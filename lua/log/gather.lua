--- log.gather  version 5  writes
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
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(records), at most 1 call + 3 per stream + 1 per producer + what log.append needs per batch
--- NOTES    The batches are judged one after another, each seeing those before it. A log's state is
---          read and written once, and its waiting readers are told once: that is what this saves.
---          Partitions can share a call where one server has them all; a refusal is one's own.
local append = require("lib.append")
local clock = require("lib.clock")

local now_ms = clock.now_ms()
local answers, at = {}, 1
for k = 1, #KEYS, 5 do
  local log, refusal = append.open(KEYS, k, ARGV[at], ARGV[at + 1] == "1", now_ms)
  local batches = tonumber(ARGV[at + 2])
  at = at + 3
  for _ = 1, batches do
    local last = at + tonumber(ARGV[at])
    -- Write. A batch that is refused has written nothing.
    answers[#answers + 1] = log and append.put(log, ARGV, at + 1, last)
      or { refusal, -1, -1, -1, -1, 0 }
    at = last + 1
  end
  if log then
    append.close(log)
  end
end
return { answers }
