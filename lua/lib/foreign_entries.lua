--- Count foreign entries: those that Korvet's scripts did not add.
---
--- The field `counted` of a log's state is the cursor: every entry up to it is in the counters and
--- in the index. It is "id:added:entries:bytes:records:offset:newest": the id of its entry; how
--- many entries had been added to the stream, or - while the next ones are being counted;
--- `entries`, `bytes` and `records` of the log's state; the offset after the entry; the newest
--- timestamp.
---
--- If more entries were added since then than Korvet's scripts have appended, all entries above the
--- cursor are counted again, appended ones too: nothing in an entry says who added it.
local entry_pages = require("lib.entry_pages")
local fields = require("lib.fields")
local index_rows = require("lib.index")
local num = require("lib.num")
local offset_map = require("lib.offset_map")

local M = {}

local INDEX_BYTES = 65536
-- An append adds no index row with this `indexed_bytes`: rows have to be added in order.
local NO_ROWS = 2 ^ 53 - 1
-- Max entries that one script reads; what a name or a value costs in addition to its bytes.
local MOST_ENTRIES, VALUE_COST = 1500, 256

-- Return the cursor as a table.
local function parse(text)
  local id, added, entries, bytes, records, offset, newest = string.match(
    text or "0-0:0:0:0:0:0:-1", "^(%d+%-%d+):(%-?%d*):(%d+):(%d+):(%d+):(%d+):(%-?%d+)$"
  )
  return {
    id = id, added = tonumber(added), entries = tonumber(entries), bytes = tonumber(bytes),
    records = tonumber(records), offset = tonumber(offset), newest = tonumber(newest),
  }
end

--- Return the text of a cursor.
function M.text(at)
  return table.concat({
    at.id, at.added and num.text(at.added) or "-", num.text(at.entries), num.text(at.bytes),
    num.text(at.records), num.text(at.offset), num.text(at.newest),
  }, ":")
end

-- Add what XINFO returns of the stream to the state. Only layout `record` asks: the reply has two
-- whole entries.
local function ask(state)
  local info = state.is_record and redis.pcall("XINFO", "STREAM", state.stream)
  if not info or info.err then
    state.length = redis.call("XLEN", state.stream)
    state.added = state.length + state.trimmed
    return true
  end
  local tail = fields.get(info, "last-entry")
  state.tail = tail and tail[1]
  state.length = fields.get(info, "length")
  state.added = fields.get(info, "entries-added")
  if state.added then
    return true
  end
  -- Before Redis 7. Another program may remove as many entries as it adds.
  state.added = state.length + state.trimmed
  return not state.tail
    or (state.map:offset(state.tail) or -1) < math.max(state.next, state.cursor.offset)
end

-- Return the stored state of a log as a table; nil if it does not exist.
local function read(stream, log)
  local row = redis.call(
    "HMGET", log, "topic_id", "format", "mode", "bits", "next", "bytes", "records", "entries",
    "counted", "trimmed", "start", "local_start", "tiered", "start_bytes", "start_records",
    "max_timestamp", "untimed_append_ms", "largest_append", "cleaned",
    "shifts"
  )
  if not row[1] then
    return nil
  end
  return {
    stream = stream, log = log, topic_id = row[1], is_record = row[2] == "record",
    mode = row[3], bits = tonumber(row[4]), next = tonumber(row[5]), bytes = tonumber(row[6]),
    records = tonumber(row[7]), entries = tonumber(row[8]), cursor = parse(row[9]),
    trimmed = tonumber(row[10] or "0"), start = tonumber(row[11]),
    first = tonumber(row[12] or row[11]), tiered = tonumber(row[13] or "0"),
    start_bytes = tonumber(row[14]), start_records = tonumber(row[15]),
    max_timestamp = tonumber(row[16]), untimed = tonumber(row[17] or "-1"),
    newest = math.max(tonumber(row[16]), tonumber(row[17] or "-1")),
    largest = tonumber(row[18]), is_cleaned = row[19] ~= false,
    map = offset_map.open(row[3], tonumber(row[4]), row[20]),
  }
end

--- Return the state of a log as a table; nil if it does not exist. `is_counted`: all entries are.
function M.open(stream, log)
  local state = read(stream, log)
  if not state then
    return nil
  end
  local may_be_counted, at = ask(state), state.cursor
  state.is_counted = may_be_counted and at.added ~= nil
    and state.added - at.added == state.entries - at.entries
  return state
end

-- Move the cursor to the end of the last append, below which all entries are counted.
local function to_last_append(state, at)
  if state.next > at.offset then
    at.id, at.offset = state.map:id(state.next - 1), state.next
  end
  at.entries, at.bytes, at.records = state.entries, state.bytes, state.records
  at.newest = state.newest
end

-- Return whether all foreign entries above the cursor are above the last append too: each entry
-- takes one offset.
local function is_before_foreign(state, at)
  return at.added and state.is_record and state.mode ~= "time"
    and state.next - at.offset == state.entries - at.entries
end

--- Return the cursor, as text, at the last append, of a log with foreign entries above `next`; nil
--- if there may be others below. Once these are numbered, `next` is above them.
function M.before_numbering(stream, log)
  local state = read(stream, log)
  local at = state.cursor
  if not is_before_foreign(state, at) then
    return nil
  end
  to_last_append(state, at)
  at.added = nil
  return M.text(at)
end

--- Move the cursor to the end of a log whose entries are all counted. A write.
function M.advance(state)
  local at = state.cursor
  if state.entries == at.entries then
    return
  end
  to_last_append(state, at)
  at.added = state.added
  -- HDEL first: at maxmemory it is allowed, and after it the other writes are too.
  redis.call("HDEL", state.log, "counted")
  redis.call("HSET", state.log, "counted", M.text(at))
end

--- Return the cursor as text, after the log's stream was replaced by one to which `more` entries
--- were added.
function M.moved(at, more)
  at.added = at.added and at.added + more
  return M.text(at)
end

-- Return records, first offset and time of an entry whose last offset is `last`, and its bytes. An
-- id of dense mode has no time: below the last append, the entry is at most as new as that.
local function measure(state, row, last, now_ms)
  local values, size, stamp = row[2], 0, nil
  for i = 1, #values do
    size = size + #values[i]
  end
  local time = last < state.next and state.newest or now_ms
  if state.mode == "time" then
    time = tonumber(string.match(row[1], "^%d+"))
  end
  time = math.min(time, now_ms)
  if not state.is_record then
    local count = tonumber(fields.get(values, "count") or "") or 0
    count = count >= 0 and count < 2 ^ 31 and math.floor(count) or 0
    stamp = tonumber(fields.get(values, "max.timestamp") or "")
    local first = last - math.max(count, 1) + 1
    return state.mode == "bytes" and 1 or count, first, math.max(time, stamp or -1), size
  end
  if state.mode == "time" then
    stamp = tonumber(fields.get(values, "timestamp") or "")
    time = stamp and math.max(time, math.min(stamp, math.max(now_ms, state.newest))) or time
  end
  return values[1] == "control" and 0 or 1, last, time, size
end

-- Count one entry: move the cursor `at` above it, and add an index row below it if one is due.
local function count(state, at, row, now_ms)
  local last = state.map:offset(row[1])
  local after = last and last + 1 or at.offset
  local records, first, time, size = measure(state, row, last or at.offset, now_ms)
  if last and (at.bytes - at.indexed >= INDEX_BYTES or at.indexed < 0) then
    local offset = num.text(math.max(first, at.offset, 0))
    at.rows[#at.rows + 1] = offset
    at.rows[#at.rows + 1] = offset .. ":" .. num.text(at.newest) .. ":" .. num.text(at.bytes)
      .. ":" .. num.text(at.records)
    at.indexed = at.bytes
  end
  at.id, at.offset, at.entries = row[1], math.max(at.offset, after), at.entries + 1
  at.bytes, at.records, at.newest = at.bytes + size, at.records + records, math.max(at.newest, time)
  at.largest = math.max(at.largest, size)
end

-- Count the next entries above the cursor. Return whether there are no more.
local function count_next(state, at, now_ms)
  local budget = entry_pages.budget()
  budget.entries = MOST_ENTRIES
  return (entry_pages.each(state.stream, "(" .. at.id, "+", budget, function(row)
    count(state, at, row, now_ms)
    budget.bytes = budget.bytes - VALUE_COST * #row[2]
  end))
end

--- Count entries above the cursor, if not all are counted. Return how many, and whether there are
--- more. `now_ms`: the present time.
function M.count(state, index, now_ms)
  if state.is_counted then
    M.advance(state)
    return 0, false
  end
  local at = state.cursor
  if is_before_foreign(state, at) then
    to_last_append(state, at)
  end
  -- What was removed meanwhile is in `start_bytes`.
  at.offset = math.max(at.offset, state.first)
  at.bytes = math.max(at.bytes, state.start_bytes)
  at.records = math.max(at.records, state.start_records)
  local from, before = num.text(at.offset), at.entries
  local newer = redis.call("ZREVRANGEBYSCORE", index, "(" .. from, "-inf", "LIMIT", 0, 1)[1]
  at.indexed = newer and index_rows.parse(newer).bytes or -1
  at.rows, at.largest = {}, state.largest
  local is_done = count_next(state, at, now_ms)
  local read = at.entries - before

  -- Write. A removal first: at maxmemory it is allowed, and after it the other writes are too.
  redis.call("ZREMRANGEBYSCORE", index, from, "+inf")
  for i = 1, #at.rows, 2 do
    redis.call("ZADD", index, at.rows[i], at.rows[i + 1])
  end
  if is_done then
    at.added = state.added
    state.bytes, state.records, state.entries = at.bytes, at.records, at.entries
    state.newest = math.max(state.newest, at.newest)
    state.is_counted = true
  else
    at.added = nil
    state.bytes = math.max(state.bytes, at.bytes)
    state.records = math.max(state.records, at.records)
  end
  if state.is_record then
    state.next = math.max(state.next, at.offset)
  end
  redis.call(
    "HSET", state.log, "counted", M.text(at), "next", num.text(state.next), "bytes",
    num.text(state.bytes), "records", num.text(state.records), "entries", num.text(state.entries),
    "untimed_append_ms", num.text(math.max(state.untimed, at.newest)), "indexed_bytes",
    num.text(is_done and at.indexed or NO_ROWS), "largest_append", num.text(at.largest)
  )
  return read, not is_done
end

-- Return the offset below which the stream has no record. The id of a batch is its last offset.
local function head_offset(state)
  if state.length == 0 then
    return math.max(state.next, state.cursor.offset)
  end
  local head = redis.call("XRANGE", state.stream, "-", "+", "COUNT", 1)[1]
  local last = state.map:offset(head[1])
  local records = state.is_record and 1 or tonumber(fields.get(head[2], "count") or 1) or 1
  return last and math.max(0, last - records + 1) or 0
end

--- Take what another program has removed from the start of a log out of its counters, in whole
--- index steps. All entries of the log are counted. A write.
function M.forget_removed(state, index)
  local rows = redis.call("ZRANGE", index, 0, 1)
  if state.is_cleaned or #rows == 0 then
    return
  end
  local head, first = head_offset(state), index_rows.parse(rows[1])
  if head <= math.max(state.first, first.offset) then
    return
  end
  local tiered = math.min(head, state.tiered)
  if tiered > state.first then
    -- Readers find in segments what Redis no longer has.
    redis.call("HSET", state.log, "local_start", num.text(tiered))
  end
  if state.length > 0 and not (rows[2] and index_rows.parse(rows[2]).offset <= head) then
    return
  end
  local bytes, records, row = index_rows.totals_below(index, state.log, head)
  if state.length == 0 then
    redis.call("UNLINK", index)
    redis.call("HSET", state.log, "indexed_bytes", "-1")
  else
    redis.call("ZREMRANGEBYSCORE", index, "-inf", "(" .. num.text(row.offset))
  end
  redis.call(
    "HSET", state.log, "start_bytes", num.text(bytes), "start_records", num.text(records)
  )
end

return M
