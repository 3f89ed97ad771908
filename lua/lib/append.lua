--- One partition's log while batches are appended: its state is read once and written once.
---
--- A batch's arguments stand side by side: count, size, max_timestamp, producer_id, producer_epoch,
--- base_sequence, transaction, and the fields of its entries (log.append says what these mean).
local codes = require("lib.codes")
local entry_id = require("lib.entry_id")
local num = require("lib.num")
local entry_limits = require("lib.entry_limits")

local M = {}

local INDEX_BYTES = 65536
-- From here on Lua cannot tell two neighbours apart.
local LAST = 2 ^ 53

--- The log behind the KEYS of log.append, from the k-th on, as a table; nil and a lib.codes value
--- when `topic_id` does not own it. `stamp`: LogAppendTime.
function M.open(keys, k, topic_id, stamp, now_ms)
  local row = redis.call(
    "HMGET", keys[k + 1], "topic_id", "format", "mode", "bits", "next", "start", "bytes", "records",
    "max_timestamp", "indexed_bytes", "largest_append", "entries", "untimed_append_ms"
  )
  if not row[1] then
    return nil, codes.UNKNOWN_TOPIC_OR_PARTITION
  end
  if row[1] ~= topic_id then
    return nil, codes.UNKNOWN_TOPIC_ID
  end
  local mode, bits = row[3], tonumber(row[4])
  return {
    stream = keys[k], hash = keys[k + 1], index = keys[k + 2], producers = keys[k + 3],
    open_txns = keys[k + 4],
    format = row[2], mode = mode, next = tonumber(row[5]), start = tonumber(row[6]),
    bytes = tonumber(row[7]), records = tonumber(row[8]), newest = tonumber(row[9]),
    indexed = tonumber(row[10]), largest = tonumber(row[11]), entries = tonumber(row[12]),
    untimed = tonumber(row[13] or "-1"),
    bits = bits, id_of = entry_id.namer(mode, bits), now_ms = now_ms, stamp = stamp,
    known = {}, changed = false,
  }
end

-- Producers with such ids are tasks of Spark's writers, which begin at sequence 0 and are never
-- forgotten before they are over.
local WRITERS_FROM = 2 ^ 51
local FORGOTTEN, FORGOTTEN_WITHIN, TOLD = -2, -3, 0

-- The error for a batch of a producer of whom nothing is known here but perhaps a transaction, by its
-- sequence and transaction; nil for none. Where one has to begin at sequence 0 and does not, its first
-- batch was refused, or lost by a failover: with Produce 12 and newer, a transaction has an epoch to
-- itself (KIP-890).
local function unbegun(id, sequence, transaction)
  if sequence == 0 or transaction == FORGOTTEN or transaction == FORGOTTEN_WITHIN then
    return nil
  end
  if transaction > 0 or id >= WRITERS_FROM then
    return codes.OUT_OF_ORDER_SEQUENCE_NUMBER
  end
  return codes.UNKNOWN_PRODUCER_ID
end

-- The transaction of a batch, whether or not its producer may have been forgotten.
local function transaction_of(args, at)
  local transaction = tonumber(args[at + 6])
  return transaction == FORGOTTEN_WITHIN and TOLD or transaction
end

-- Whether the producer's batch may be appended: nil, or the answer that refuses it; then what is
-- remembered of the producer, as text, and parsed where lib.producer_sequence does not do.
local function judged(log, args, at)
  local id, epoch, sequence = args[at + 3], args[at + 4], args[at + 5]
  local text = log.known[id] or redis.call("HGET", log.producers, id)
  if text and args[at + 6] == "-1" then
    local producer_sequence = require("lib.producer_sequence")
    if producer_sequence.follows(text, epoch, sequence) then
      return nil, text
    end
  end
  for i = at + 3, at + 6 do
    if not string.find(args[i] or "", "^%-?%d+$") then
      error("no batch: its producer, sequence and transaction are not told in digits", 0)
    end
  end
  local producer_state = require("lib.producer_state")
  local known, transaction = producer_state.read(text), transaction_of(args, at)
  epoch, sequence = tonumber(epoch), tonumber(sequence)
  local verdict = producer_state.judge(known, epoch, sequence)
  -- A partition that was told of no transaction says so first.
  if verdict == "anywhere" or (not known and transaction ~= TOLD) then
    local unknown = unbegun(tonumber(id), sequence, tonumber(args[at + 6]))
    if unknown then
      return { unknown, -1, -1, log.start, -1, 0 }
    end
    verdict = "ok"
  end
  local last_sequence = producer_state.last_sequence(sequence, tonumber(args[at]))
  local stored_at = producer_state.duplicate_of(known, epoch, sequence, last_sequence)
  if stored_at then
    return { codes.NONE, stored_at, -1, log.start, -1, 0 }
  end
  local error = codes.OUT_OF_ORDER_SEQUENCE_NUMBER
  if verdict == "ok" then
    if producer_state.may_append(known, epoch, transaction) then
      if transaction >= 0 and not (known and known.first and known.first >= 0) then
        -- It begins here, and that is written last: raises where this is no sorted set.
        redis.call("ZCARD", log.open_txns)
      end
      return nil, nil, known
    end
    error = codes.INVALID_TXN_STATE
  elseif verdict == "fenced" then
    error = codes.INVALID_PRODUCER_EPOCH
  elseif verdict == "old" then
    error = codes.DUPLICATE_SEQUENCE_NUMBER
  end
  return { error, -1, -1, log.start, -1, 0 }
end

-- The producer's batch stands at `base`; `text` and `known` are judged's.
local function remember(log, args, at, base, text, known)
  local id, epoch, sequence, count = args[at + 3], args[at + 4], args[at + 5], tonumber(args[at])
  if text then
    local producer_sequence = require("lib.producer_sequence")
    log.known[id] = producer_sequence.after(text, epoch, sequence, count, base, log.now_ms)
    return
  end
  local producer_state = require("lib.producer_state")
  local state = producer_state.appended(
    known, tonumber(epoch), sequence, count, base, transaction_of(args, at)
  )
  log.known[id] = producer_state.text(state, log.now_ms)
  if state.first == base then
    redis.call("ZADD", log.open_txns, log.next, id)
    redis.call("HSET", log.hash, "stable", redis.call("ZRANGE", log.open_txns, 0, 0, "WITHSCORES")[2])
  end
end

-- A function (call, offset, first, last) that adds the entry whose fields are args[first..last]; a
-- batch that stands alone there gets the fields that args[at..] tell of it.
local function adder(log, args, at)
  local stream, id_of, now_ms = log.stream, log.id_of, log.stamp and log.now_ms
  return function(call, offset, first, last)
    local id = id_of(offset)
    if first == last then
      local count, newest = args[at], args[at + 2]
      if now_ms then
        return call(
          "XADD", stream, id, "append.time", now_ms, "batch", args[first], "count", count,
          "max.timestamp", newest
        )
      end
      return call("XADD", stream, id, "batch", args[first], "count", count, "max.timestamp", newest)
    end
    if now_ms then
      return call("XADD", stream, id, "append.time", now_ms, unpack(args, first, last))
    end
    return call("XADD", stream, id, unpack(args, first, last))
  end
end

-- Where the fields of `count` records end, the first one's number standing at args[at]; nil where a
-- number of them is none that an entry can have.
local function measured(args, at, last, count, least)
  local ends = at - 1
  for _ = 1, count do
    local fields = ends < last and tonumber(args[ends + 1])
    if not fields or fields < least or fields % 2 ~= 0 then
      return nil
    end
    if fields > entry_limits.MOST then
      entry_limits.fit(fields)
    end
    ends = ends + 1 + fields
  end
  return ends
end

--- The batch whose arguments are args[at..last] stands in the log, or nothing has changed. Answers
--- what log.append returns.
function M.put(log, args, at, last)
  local count, size, newest = tonumber(args[at]), tonumber(args[at + 1]), tonumber(args[at + 2])
  -- Entries may repeat the first and the third as they are given.
  if not (count and size and newest and size >= 0 and size < 2 ^ 53 and size % 1 == 0
    and newest < 2 ^ 63 and string.find(args[at + 2], "^%-?%d+$")
    and (count >= 1 or count == 0 and log.mode == "bytes")
    and count <= 2 ^ 31 and string.find(args[at], "^%d+$")) then
    error("no batch: count, size and max_timestamp are not those of one", 0)
  end
  newest = log.stamp and log.now_ms or newest
  -- What is no number counts as a sequence, and is refused as one.
  local idempotent, refused, text, known = not ((tonumber(args[at + 5]) or 0) < 0), nil, nil, nil
  if idempotent then
    refused, text, known = judged(log, args, at)
    if refused then
      return refused
    end
  end

  local before, base, now_ms = log.next, log.next, log.now_ms
  if log.mode == "time" then
    base = math.max(base, now_ms * 2 ^ log.bits)
  end
  local add = adder(log, args, at)
  local per_entry = log.format == "batch" and count or 1
  local first, ends = at + 7, last
  local width, entries, widest = count, count / per_entry, size
  -- Where its fields end, by what they say of themselves. None may be missing once something is written.
  local plan, rest, whole = {}, nil, nil
  if log.mode == "bytes" then
    local byte_entries = require("lib.byte_entries")
    plan, width, widest, whole = byte_entries.read(args, first, last)
    per_entry, first, ends = plan[1][1] + 1, plan[1][2], plan[1][3]
    entries = #plan
  elseif log.format == "record" then
    local fields, stamp = tonumber(args[first]), log.stamp and now_ms
    if not fields then
      local columnar_entries = require("lib.columnar_entries")
      entry_limits.fit(2 * (tonumber(args[first + 1]) or 0))
      add, rest, whole = columnar_entries.columns(log, args, first + 1, stamp, count)
    elseif fields < 0 then
      local columnar_entries = require("lib.columnar_entries")
      entry_limits.fit(-2 * fields)
      add, rest = columnar_entries.rows(log, args, first + 1, -fields, stamp)
      whole = first - fields * (count + 1)
    else
      whole = measured(args, first, last, count, stamp and 0 or 2)
      first, ends = first + 1, first + fields
    end
  elseif first == last or first < last and (last - first) % 2 == 1 then
    entry_limits.fit(last - first + 1)
    whole = last
  end
  if whole ~= last then
    error("no batch: its fields are not those of " .. args[at] .. " records", 0)
  end

  local indexes = log.bytes - log.indexed >= INDEX_BYTES or log.indexed < 0
  if indexes then
    -- Raises where it is no sorted set, before the first write.
    redis.call("ZCARD", log.index)
  end

  local added = base <= LAST - width and add(redis.pcall, base + per_entry - 1, first, ends)
  if not added or type(added) == "table" and added.err then
    local stream_end = require("lib.stream_end")
    before = stream_end.behind_all(log.mode, log.bits, log.stream)
    base = math.max(base, before)
    if base > LAST - width then
      error("the offsets of " .. log.stream .. " are exhausted by its last entry", 0)
    end
    add(redis.call, base + per_entry - 1, first, ends)
    log.next = before
    if log.mode ~= "time" then
      -- Who had added entries natively did so a while ago, of which nothing is known.
      log.untimed, log.was_untimed = math.max(log.untimed, now_ms), true
    end
  end
  for i = 2, #plan do
    add(redis.call, base + plan[i][1], plan[i][2], plan[i][3])
  end
  if rest then
    local columnar_entries = require("lib.columnar_entries")
    columnar_entries.follow(log, base, count, rest)
  elseif log.format == "record" and log.mode ~= "bytes" then
    for i = 1, count - 1 do
      first = ends + 2
      ends = ends + 1 + tonumber(args[ends + 1])
      add(redis.call, base + i, first, ends)
    end
  end

  -- A batch without timestamps is in an index row as old as its append.
  if indexes then
    redis.call(
      "ZADD", log.index, base,
      num.text(base) .. ":" .. num.text(math.max(log.newest, log.untimed)) .. ":"
        .. num.text(log.bytes) .. ":" .. num.text(log.records)
    )
    log.indexed = log.bytes
  end
  if idempotent then
    remember(log, args, at, base, text, known)
  end
  log.next, log.bytes, log.records = base + width, log.bytes + size, log.records + count
  if newest < 0 then
    log.untimed, log.was_untimed = math.max(log.untimed, now_ms), true
  end
  log.newest = math.max(log.newest, newest)
  log.largest, log.entries = math.max(log.largest, widest), log.entries + entries
  log.changed = true
  return { codes.NONE, base, before, log.start, log.stamp and now_ms or -1, 1 }
end

--- What was put is the log's state, and whoever waits for records knows.
function M.close(log)
  if not log.changed then
    return
  end
  redis.call(
    "HSET", log.hash, "next", log.next, "bytes", log.bytes, "records", log.records,
    "max_timestamp", log.newest, "indexed_bytes", log.indexed, "largest_append", log.largest,
    "entries", log.entries
  )
  if log.was_untimed then
    redis.call("HSET", log.hash, "untimed_append_ms", log.untimed)
  end
  for id, text in pairs(log.known) do
    redis.call("HSET", log.producers, id, text)
  end
  redis.call("PUBLISH", log.stream, log.next)
end

return M
