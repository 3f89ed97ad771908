--- schedule.append_due  version 1  writes
--- Append the scheduled records that are due, ordered by due time, then by arrival.
---
--- KEYS     stream             stream  the partition's records
---          log                hash    the partition's state
---          index              zset    sparse index
---          producers          hash    producer states
---          open_txns          zset    open transactions
---          dedupe             hash    known ids
---          dedupe_old         hash    known ids of earlier records
---          table              hash    newest values by key
---          table_newer        zset    offsets of newer records by key
---          scheduled          zset    number of a scheduled record -> due time
---          scheduled_records  hash    number -> row
---          scheduled_ids      hash    schedule id -> number
--- ARGV     topic_id           text    the topic's id as the caller knows it, 32 hex digits
---          stamp              int=0   1: LogAppendTime, as in log.append
---          max_rows           int     max rows to move in this call, at most 1,000; in layout
---                                     `record` max records too, but for the first row
---          max_bytes          int     bytes of rows after which the call moves no further one
--- RETURNS  error              int     a lib.codes value
---          records            int     records appended
---          late_ms            int     age of the first due time, -1 if nothing was due
---          wait_ms            int     until the next record is due; 0: now; -1: none waits
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: records are moved: they must leave then as well
--- COST     O(rows log scheduled), at most 54 calls + 6 per row + 1 per entry + 4 per new_ms
--- NOTES    Each call notices whether Redis's clock was set back (lib.schedule).
---          Each record is appended once: this script removes it and appends it in one step, so
---          any number of brokers may call it. Retention counts these records as old as their
---          append: their timestamps are those of their producers.
local append = require("lib.append")
local clock = require("lib.clock")
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local num = require("lib.num")
local pack = require("lib.pack")
local schedules = require("lib.schedule")

local max_rows, max_bytes = tonumber(ARGV[3]), tonumber(ARGV[4])

-- Check.
local now_ms = clock.now_ms()
local log, refusal = append.open(KEYS, 1, ARGV[1], ARGV[2] == "1", now_ms)
if not log then
  return { refusal, 0, -1, -1 }
end
log.is_due = true
redis.call("ZCARD", log.index)
local schedule = schedules.open(KEYS[2], KEYS, 10)

-- Return the ms until the next record is due.
local function wait_ms()
  local due = schedules.first_due(schedule)
  return due and math.max(0, due - now_ms) or -1
end

local first_due = schedules.first_due(schedule)
if not first_due or first_due > now_ms then
  if first_due then
    schedules.close(schedule)
  end
  return { codes.NONE, 0, -1, wait_ms() }
end
local due = schedules.page(schedule, 0, 0, math.min(max_rows, 1000))
local numbers, batches, ids, named, bytes, moved = {}, {}, {}, {}, 0, 0
for i = 1, #due do
  local number = due[i][1]
  if due[i][2] > now_ms then
    break
  end
  local row = redis.call("HGET", schedule.rows, number)
  if row then
    local count, size, newest, id, at = schedules.parse(row)
    if bytes > 0 and (bytes + #row > max_bytes or log.is_record and moved + count > max_rows) then
      break
    end
    bytes, moved = bytes + #row, moved + count
    batches[#batches + 1] = { count, size, newest, string.sub(row, at) }
    schedules.subtract(schedule, row)
    if id ~= "" then
      ids[#ids + 1], named[#named + 1] = id, number
    end
  end
  numbers[#numbers + 1] = number
end
if log.mode == "bytes" then
  error("schedule.append_due: a topic with offset.mode=bytes has no scheduled records", 0)
end

-- Return the arguments of lib.append for all rows of layout `record`, as one batch.
local function one_batch()
  local batch, size, newest = { "", "", "", "-1", "-1", "-1", "-1" }, 0, nil
  local count = 0
  for _, each in ipairs(batches) do
    pack.unpack(each[4], batch)
    count, size = count + each[1], size + each[2]
    if not newest or tonumber(each[3]) > tonumber(newest) then
      newest = each[3]
    end
  end
  batch[1], batch[2], batch[3] = num.small(count), size, newest
  return batch, count
end

-- Write.
local records = 0
if #batches > 0 and log.is_record then
  local batch
  batch, records = one_batch()
  if append.put(log, batch, 1)[1] ~= codes.NONE then
    -- Foreign entries are left to number: nothing is moved, and the next call continues.
    append.close(log)
    return { codes.NONE, 0, -1, 0 }
  end
elseif #batches > 0 then
  for _, each in ipairs(batches) do
    append.put(log, { num.small(each[1]), each[2], each[3], "-1", "-1", "-1", "-1", each[4] }, 1)
    records = records + each[1]
  end
end
log.untimed, log.was_untimed = math.max(log.untimed, now_ms), true
append.close(log)
redis.call("ZREM", schedule.due, unpack(numbers))
redis.call("HDEL", schedule.rows, unpack(numbers))
if #ids > 0 then
  local current, gone = redis.call("HMGET", schedule.ids, unpack(ids)), {}
  for i = 1, #ids do
    if current[i] == named[i] then
      gone[#gone + 1] = ids[i]
    end
  end
  chunks.call("HDEL", schedule.ids, gone)
end
schedules.close(schedule)
return { codes.NONE, records, now_ms - first_due, wait_ms() }
