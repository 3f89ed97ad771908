--- schedule.add  version 1  writes
--- Append a batch's ordinary records, store its scheduled ones, cancel those that it names.
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
---          count              int     records of the batch, of all kinds: the sequences it takes
---          size               int=0   bytes that the ordinary records add to the log's size
---          max_timestamp      int=-1  ms, the max timestamp of the ordinary records
---          producer_id        int=-1  -1 without idempotence
---          producer_epoch     int=-1  -1 without idempotence
---          base_sequence      int=-1  -1 without idempotence
---          transaction        int=-1  -1; -2 as in log.append
---          max_count          int     max scheduled records of the partition
---          max_bytes          int     max bytes of their rows
---          channel            text    channel for the stream's name, if the first due time changed
---          ordinary           int=0   number of ordinary records
---          rows               int     number of rows
---          later_records      int=0   scheduled records of the batch's later parts
---          later_bytes        int=0   bytes of their payloads
---          rest...            bytes   For each row seven arguments: its kind (`at`: due at that
---                                     time, ms; `in`: due after that delay, ms; `cancel`), the
---                                     time, the schedule id or empty, the records (with an id 1),
---                                     their size, their max timestamp, the payload of
---                                     lib.schedule. Then the fields of the ordinary records, as in
---                                     log.append
--- RETURNS  error              int     a lib.codes value
---          base               int     -1: the batch's records have no consecutive offsets;
---                                     INVALID_UPDATE_VERSION: see log.append
---          previous           int     -1
---          start              int     log start offset
---          append_time        int     ms of Redis's clock, -1 without LogAppendTime
---          stored             int     1 stored now, 0 a duplicate of a stored batch, or an error
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID UNKNOWN_PRODUCER_ID INVALID_PRODUCER_EPOCH
---          DUPLICATE_SEQUENCE_NUMBER OUT_OF_ORDER_SEQUENCE_NUMBER INVALID_TXN_STATE
---          POLICY_VIOLATION INVALID_RECORD INVALID_UPDATE_VERSION
--- SIGNALS  KAFKA_STORAGE_ERROR
--- COST     O(records), at most 49 calls + 1 per arg + 4 per new_ms
--- NOTES    A delay counts by the partition's own clock (lib.schedule).
---          POLICY_VIOLATION: with this batch and its later parts the partition would have more
---          scheduled records than max_count, or more bytes than max_bytes, less what the rows of
---          this call replace. A large batch is several calls, as in log.append. A record with the
---          schedule id of a waiting one replaces it. A record that is due already is stored as
---          well; schedule.append_due moves it at once. A retried batch of an idempotent producer
---          is a duplicate, as in log.append. KAFKA_STORAGE_ERROR: nothing of the batch is stored,
---          but foreign entries were numbered; the next call continues.
local append = require("lib.append")
local clock = require("lib.clock")
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local num = require("lib.num")
local schedules = require("lib.schedule")

local find = string.find
local FIXED, OF_ROW = 16, 7
local ordinary, rows = tonumber(ARGV[13]), tonumber(ARGV[14])
local fields = FIXED + OF_ROW * rows + 1
if rows < 0 or ordinary < 0 or fields - 1 > #ARGV or (ordinary == 0 and fields <= #ARGV) then
  error("schedule.add: ARGV are not those of " .. ARGV[14] .. " rows", 0)
end
for at = FIXED + 1, fields - 1, OF_ROW do
  local kind = ARGV[at]
  if kind ~= "at" and kind ~= "in" and kind ~= "cancel" then
    error("schedule.add: a row's kind is at, in or cancel", 0)
  end
  if find(ARGV[at + 1], "%D") or find(ARGV[at + 3], "%D") or find(ARGV[at + 4], "%D")
    or not find(ARGV[at + 5], "^%-?%d+$") or ARGV[at + 1] == "" or ARGV[at + 3] == ""
    or ARGV[at + 4] == "" then
    error("schedule.add: time, count, size and max timestamp of a row are integers", 0)
  end
  if ARGV[at + 2] ~= "" and ARGV[at + 3] ~= (kind == "cancel" and "0" or "1") then
    error("schedule.add: a row with a schedule id has one record, or cancels", 0)
  end
end

-- Check.
local now_ms = clock.now_ms()
local log, refusal = append.open(KEYS, 1, ARGV[1], ARGV[2] == "1", now_ms)
if not log then
  return { refusal, -1, -1, -1, -1, 0 }
end
local idempotent, text, known = tonumber(ARGV[8]) >= 0, nil, nil
if idempotent then
  local rejected
  rejected, text, known = append.check_producer(log, ARGV, 3)
  if rejected then
    rejected[2] = -1
    return rejected
  end
end
local schedule = schedules.open(KEYS[2], KEYS, 10)
-- The rows to add, as their first arguments; false for one that a later row of this batch replaces
-- or cancels. By schedule id the position in them, false for a cancelled one.
local added, position_of, ids = {}, {}, {}
for at = FIXED + 1, fields - 1, OF_ROW do
  local id, is_added = ARGV[at + 2], ARGV[at] ~= "cancel"
  if is_added then
    added[#added + 1] = at
  end
  if id ~= "" then
    local position = position_of[id]
    if position then
      added[position] = false
    elseif position == nil then
      ids[#ids + 1] = id
    end
    position_of[id] = is_added and #added
  end
end
local texts, new_count, new_bytes = {}, tonumber(ARGV[15]), tonumber(ARGV[16])
for position, at in ipairs(added) do
  if at then
    local row = schedules.row(ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 2], ARGV[at + 6])
    texts[position] = row
    new_count, new_bytes = new_count + tonumber(ARGV[at + 3]), new_bytes + #row
  end
end
-- What waits with these ids: rows of one record, which may be long.
local cancelled, numbers, replaced, replaced_bytes = {}, {}, 0, 0
for i, number in ipairs(chunks.list("HMGET", schedule.ids, ids)) do
  if number then
    local length = redis.call("HSTRLEN", schedule.rows, number)
    numbers[#numbers + 1] = number
    replaced, replaced_bytes = replaced + (length > 0 and 1 or 0), replaced_bytes + length
    if not position_of[ids[i]] then
      cancelled[#cancelled + 1] = ids[i]
    end
  end
end
schedule.count, schedule.bytes = schedule.count - replaced, schedule.bytes - replaced_bytes
if new_count > replaced and schedule.count + new_count > tonumber(ARGV[10])
  or new_bytes > replaced_bytes and schedule.bytes + new_bytes > tonumber(ARGV[11]) then
  return { codes.POLICY_VIOLATION, -1, -1, log.start, -1, 0 }
end
local first_due = schedules.first_due(schedule)

-- Write.
local base = log.next
if ordinary > 0 then
  local batch = { num.text(ordinary), ARGV[4], ARGV[5], "-1", "-1", "-1", "-1" }
  for i = fields, #ARGV do
    batch[#batch + 1] = ARGV[i]
  end
  local answer = append.put(log, batch, 1, #batch)
  if answer[1] ~= codes.NONE then
    append.close(log)
    return answer
  end
  base = answer[2]
end
if idempotent then
  append.update_producer(log, ARGV, 3, base, text, known)
end
append.close(log)

chunks.call("ZREM", schedule.due, numbers)
chunks.call("HDEL", schedule.rows, numbers)
chunks.call("HDEL", schedule.ids, cancelled)
local dues, records, names = {}, {}, {}
for position, at in ipairs(added) do
  if at then
    local id, number = ARGV[at + 2], num.padded(schedule.number + position - 1)
    local n, row = #dues, texts[position]
    dues[n + 1], dues[n + 2] = schedules.score(schedule, ARGV[at], tonumber(ARGV[at + 1])), number
    records[n + 1], records[n + 2] = number, row
    schedule.count, schedule.bytes = schedule.count + tonumber(ARGV[at + 3]), schedule.bytes + #row
    if id ~= "" then
      names[#names + 1], names[#names + 2] = id, number
    end
  end
end
schedule.number = schedule.number + #added
chunks.call("ZADD", schedule.due, dues)
chunks.call("HSET", schedule.rows, records)
chunks.call("HSET", schedule.ids, names)
schedules.close(schedule)
local due = #dues > 0 and schedules.first_due(schedule)
if due and (not first_due or due < first_due) then
  redis.call("PUBLISH", ARGV[12], KEYS[1])
end
return { codes.NONE, -1, -1, log.start, log.stamp and now_ms or -1, 1 }
