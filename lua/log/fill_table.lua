--- log.fill_table  version 1  writes
--- Add to a partition's table the records that no append has added: of ended transactions, of other
--- programs, and from before the table was enabled.
---
--- KEYS     stream        stream  the partition's records
---          log           hash    the partition's state
---          aborted_txns  zset    "producer id:first:stable after it" -> offset of the marker
---          table         hash    record key -> value of its newest record
---          table_newer   zset    record key -> offset of its newest record, if appended since
--- ARGV     topic_id      text    the topic id the caller expects, 32 hex digits
---          at_most       int     max entries to read in this call, at most 2,000
---          values...     bytes   for each entry that the call before returned as packed: its
---                                offset, then its value
--- RETURNS  error         int     a lib.codes value
---          folded        int     the table has all records below this offset; -1: no table
---          more          int     1: call again
---          packed        values  for each compressed value: its offset, the field's name, the
---                                field's value. The next call needs them decompressed
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(entries + aborted transactions after them), at most 220 calls + 1 per aborted_page
---          + 4 per new_ms
--- NOTES    Records from the oldest open transaction on are left to later calls, as a committed
---          read leaves them; those without a transaction are in the table already. A record that
---          was removed from the log before is not added. Entries without offsets are no records.
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local entry_pages = require("lib.entry_pages")
local num = require("lib.num")
local numbering = require("lib.numbering")
local topic_table = require("lib.topic_table")

local stream, log, aborted_txns, values, newer = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local topic_id, at_most, VALUES = ARGV[1], tonumber(ARGV[2]), 3
local MOST_BYTES, PACKED_BYTES, STEPS, ROWS = 4194304, 1048576, 500, 1000

-- Check.
local state = redis.call("HMGET", log, "topic_id", "table", "stable", "start", "table_offsets")
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, {} }
end
local before, stable = tonumber(state[2] or "-1"), tonumber(state[3] or "-1")
local has_offsets = state[5]
if before < 0 then
  return { codes.NONE, -1, 0, {} }
end
redis.call("HLEN", values)
redis.call("ZCARD", newer)
redis.call("ZCARD", aborted_txns)

-- Write.
local ended, map, is_numbered = numbering.settle(numbering.open(stream, log), STEPS)
local limit = stable >= 0 and math.min(stable, ended) or ended
if before >= limit and is_numbered then
  if before >= ended and not has_offsets then
    redis.call("UNLINK", newer)
  end
  return { codes.NONE, before, 0, {} }
end

local unpacked = {}
for i = VALUES, #ARGV, 2 do
  unpacked[ARGV[i]] = ARGV[i + 1]
end

-- Return offset, key, value and producer id of an entry, the last -1 without a transaction; nil if
-- it is no record. The value is false if there is none, and true if it is packed.
local packed, packed_bytes = {}, 0
local function record_of(offset, fields)
  local first = fields[1] == "append.time" and 3 or 1
  if fields[first] == "control" and fields[first + 2] == "transaction" then
    return nil
  end
  local key, value, name = false, false, nil
  for i = 1, #fields, 2 do
    if fields[i] == "key" then
      key = fields[i + 1]
    elseif fields[i] == "value" then
      value, name = fields[i + 1], nil
    elseif topic_table.PACKED[fields[i]] then
      value, name = fields[i + 1], fields[i]
    end
  end
  if not key then
    return nil
  end
  if name then
    local text = num.text(offset)
    local plain = unpacked[text]
    if not plain then
      packed[#packed + 1], packed[#packed + 2], packed[#packed + 3] = text, name, value
      packed_bytes = packed_bytes + #value
    end
    value = plain or true
  end
  local is_transactional = fields[first] == "transaction"
  return {
    offset = offset, key = key, value = value, id = is_transactional and fields[first + 1],
  }
end

-- Read.
local budget = entry_pages.budget()
budget.entries, budget.bytes = math.min(at_most, 2000), MOST_BYTES
local records, folded, has_transactions = {}, before, false
local is_read = entry_pages.each(stream, map:from(before), "+", budget, function(entry)
  local offset = map:offset(entry[1])
  if not offset then
    budget.entries = budget.entries + 1
    return false
  end
  if offset >= limit or packed_bytes >= PACKED_BYTES then
    return true
  end
  local record = offset >= before and record_of(offset, entry[2])
  if record then
    records[#records + 1] = record
    has_transactions = has_transactions or record.id
  end
  folded = math.max(folded, offset + 1)
end)
if #packed > 0 then
  return { codes.NONE, before, 1, packed }
end
if is_read then
  folded = math.max(folded, limit)
end

-- Return a function that says whether a record's transaction was aborted.
local function aborted_of()
  local spans, from = {}, 0
  while true do
    local rows = redis.call(
      "ZRANGEBYSCORE", aborted_txns, num.text(before), "+inf", "WITHSCORES", "LIMIT", from, ROWS
    )
    local last
    for i = 1, #rows, 2 do
      local id, first, after = string.match(rows[i], "^(%-?%d+):(%d+):(%d+)$")
      spans[id] = spans[id] or {}
      table.insert(spans[id], { tonumber(first), tonumber(rows[i + 1]) })
      last = tonumber(after)
    end
    -- A transaction that is aborted later began at or above that offset.
    if #rows < 2 * ROWS or last >= folded then
      break
    end
    from = from + ROWS
  end
  return function(record)
    for _, span in ipairs(record.id and spans[record.id] or {}) do
      if record.offset >= span[1] and record.offset < span[2] then
        return true
      end
    end
    return false
  end
end

local is_aborted = has_transactions and aborted_of() or function() return false end
local newest, keys = {}, {}
for _, record in ipairs(records) do
  if not is_aborted(record) then
    if not newest[record.key] then
      keys[#keys + 1] = record.key
    end
    newest[record.key] = record
  end
end
local scores, chosen, offsets, removed = {}, {}, {}, {}
if redis.call("EXISTS", newer) == 1 then
  scores = chunks.list("ZMSCORE", newer, keys)
end
for i, key in ipairs(keys) do
  local record, score = newest[key], tonumber(scores[i] or "-1")
  if score < record.offset then
    chosen[key] = record.value
  end
  if score <= record.offset and not record.value then
    removed[#removed + 1] = key
  elseif score < record.offset then
    offsets[#offsets + 1], offsets[#offsets + 2] = num.text(record.offset), key
  end
end
topic_table.write(values, chosen)
redis.call("HSET", log, "table", num.text(folded))
if has_offsets then
  chunks.call("ZADD", newer, offsets)
  chunks.call("ZREM", newer, removed)
elseif folded >= ended then
  redis.call("UNLINK", newer)
else
  -- More than that are left to later calls: their records were removed from the log.
  local past = "(" .. num.text(folded)
  local rest = redis.call(
    "ZRANGEBYSCORE", newer, "-inf", past, "WITHSCORES", "LIMIT", 2 * at_most, 1
  )
  redis.call("ZREMRANGEBYSCORE", newer, "-inf", rest[2] and "(" .. rest[2] or past)
end
return { codes.NONE, folded, (folded < limit or not is_numbered) and 1 or 0, {} }
