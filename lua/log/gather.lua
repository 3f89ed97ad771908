--- log.gather  version 4  writes
--- Each of several batches for one partition stands in the log, or nothing of that batch does.
---
--- KEYS     stream       stream  as in log.append, and so are the next four
---          log          hash    the partition's state
---          index        zset    sparse index
---          producers    hash    what is remembered of producers
---          open         zset    open transactions
--- ARGV     topic_id     bytes   the topic the callers believe in, 32 hex digits
---          stamp        int     1: LogAppendTime
---          batches...   bytes   for each batch the number of its arguments, then those: what
---                               log.append is given from count on
--- RETURNS  error        int     a lib.codes value for all of them
---          answers      list    one a batch, in their order: what log.append returns for it
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(records), at most 4 calls + 1 per producer + what log.append needs per batch
--- NOTES    The batches are judged one after another, each seeing those before it. The log's state
---          is read and written once, and waiting readers are told once: that is what this saves.
local append = require("lib.append")

local log, refusal = append.open(KEYS, ARGV[1], ARGV[2] == "1")
if not log then
  return { refusal, {} }
end

-- Write. A batch that is refused has written nothing.
local answers, at = {}, 3
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  answers[#answers + 1] = append.put(log, ARGV, at + 1, last)
  at = last + 1
end
append.close(log)
return { 0, answers }
