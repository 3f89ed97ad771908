--- Append batches to one partition's log: its state is read once and written once.
---
--- A batch's arguments are, from args[at] on: count, size, max_timestamp, producer_id,
--- producer_epoch, base_sequence, transaction, and the fields of its entries (see log.append).
---
--- The writer of a layout (lib.record_entries, lib.batch_entries, lib.byte_entries) has one
--- function: `read(log, args, at, last, count, size)` reads the fields of a batch, up to
--- args[last], and returns
---   offsets         how many offsets the batch takes
---   entries         how many entries
---   largest         the size of the largest append, see `largest_append` of the log's state
---   add(call, base) adds the first entry; may be called again if Redis rejected it
---   add_rest(base)  adds the others; nil if there are none
--- or nil if the fields are not those of `count` records.
local codes = require("lib.codes")
local entry_id = require("lib.entry_id")
local num = require("lib.num")

local M = {}

local INDEX_BYTES = 65536
-- The highest timestamp in a log's state, index and entries: Lua's doubles are rounded up below
-- 2^63, the end of Lua's integers.
local FAR = 2 ^ 62

-- The writer of a log's layout.
local function writer_of(format, mode)
  if mode == "bytes" then
    local byte_entries = require("lib.byte_entries")
    return byte_entries
  end
  if format == "record" then
    local record_entries = require("lib.record_entries")
    return record_entries
  end
  local batch_entries = require("lib.batch_entries")
  return batch_entries
end

-- Add what a log with entries at other than natural ids needs.
local function open_map(log, shifts)
  local offset_map = require("lib.offset_map")
  log.map = log.map or offset_map.open(log.mode, log.bits, shifts)
  log.id_of, log.fixed_ms = log.map:namer()
end

--- Return the log of KEYS of log.append, from the k-th on, as a table, or nil and a lib.codes value
--- if its topic id differs. `stamp`: LogAppendTime.
function M.open(keys, k, topic_id, stamp, now_ms)
  local row = redis.call(
    "HMGET", keys[k + 1], "topic_id", "format", "mode", "bits", "next", "start", "bytes", "records",
    "max_timestamp", "indexed_bytes", "largest_append", "entries", "untimed_append_ms", "shifts",
    "epoch_ms", "dedupe", "table", "table_offsets"
  )
  if not row[1] then
    return nil, codes.UNKNOWN_TOPIC_OR_PARTITION
  end
  if row[1] ~= topic_id then
    return nil, codes.UNKNOWN_TOPIC_ID
  end
  local mode, bits = row[3], tonumber(row[4])
  local log = {
    stream = keys[k], hash = keys[k + 1], index = keys[k + 2], producers = keys[k + 3],
    open_txns = keys[k + 4],
    writer = writer_of(row[2], mode), mode = mode, is_record = row[2] == "record",
    next = tonumber(row[5]), start = tonumber(row[6]),
    bytes = tonumber(row[7]), records = tonumber(row[8]), newest = tonumber(row[9]),
    indexed = tonumber(row[10]), largest = tonumber(row[11]), entries = tonumber(row[12]),
    untimed = tonumber(row[13] or "-1"),
    bits = bits, id_of = entry_id.namer(mode, bits), now_ms = now_ms, stamp = stamp,
    known = {}, changed = false, epoch_ms = row[15], dedupe = row[16], ids = keys[k + 5],
    old_ids = keys[k + 6], table = tonumber(row[17] or nil), values = keys[k + 7],
    newer = keys[k + 8], has_offsets = row[18],
  }
  if row[14] then
    open_map(log, row[14])
  end
  return log
end

-- Producer ids from here on are tasks of Spark's writers: they start at sequence 0, and their state
-- never expires before they end.
local WRITERS_FROM = 2 ^ 51
-- Values of `transaction`.
local NONE, EXPIRED, REGISTERED, EXPIRED_IN_TXN = "-1", -2, 0, -3
-- How long after a loss a producer without state counts as one whose batches were lost.
local LOST_MS = 86400000

-- The error for a batch whose producer has no batches in the partition's state, by its sequence and
-- transaction; nil for none. A producer that must start at sequence 0 and does not had its first
-- batch rejected, or lost by a failover: from Produce 12 on, a transaction has an epoch to itself
-- (KIP-890). For a day after a leader epoch began, that is so for every producer.
local function unknown_producer_error(log, id, sequence, transaction)
  if sequence == 0 or transaction == EXPIRED or transaction == EXPIRED_IN_TXN then
    return nil
  end
  local is_lost = log.epoch_ms and log.now_ms - tonumber(log.epoch_ms) < LOST_MS
  if transaction > 0 or id >= WRITERS_FROM or is_lost then
    return codes.OUT_OF_ORDER_SEQUENCE_NUMBER
  end
  return codes.UNKNOWN_PRODUCER_ID
end

-- The transaction of a batch, whether or not its producer's state may have expired.
local function transaction_of(args, at)
  local transaction = tonumber(args[at + 6])
  return transaction == EXPIRED_IN_TXN and REGISTERED or transaction
end

--- Check the producer's batch: return nil, or the reply that rejects it; then the
--- producer's state as text if it is lib.producer_sequence's case, else nil and the state as a
--- table.
function M.check_producer(log, args, at)
  local id, epoch, sequence = args[at + 3], args[at + 4], args[at + 5]
  local text = log.known[id] or redis.call("HGET", log.producers, id)
  if text and args[at + 6] == NONE then
    local producer_sequence = require("lib.producer_sequence")
    if producer_sequence.follows(text, epoch, sequence) then
      return nil, text
    end
  end
  for i = at + 3, at + 6 do
    if not string.find(args[i] or "", "^%-?%d+$") then
      error("no batch: its producer, sequence and transaction are not integers", 0)
    end
  end
  local producer_state = require("lib.producer_state")
  local known, transaction = producer_state.read(text), transaction_of(args, at)
  epoch, sequence = tonumber(epoch), tonumber(sequence)
  local verdict = producer_state.judge(known, epoch, sequence)
  -- A partition in which no transaction is registered answers that first, below.
  if verdict == "expired" or (not known and transaction ~= REGISTERED) then
    local error = unknown_producer_error(log, tonumber(id), sequence, tonumber(args[at + 6]))
    if error then
      return { error, -1, -1, log.start, -1, 0 }
    end
    verdict = "ok"
  end
  local last_sequence = producer_state.last_sequence(sequence, tonumber(args[at]))
  local stored_at = producer_state.duplicate_of(known, epoch, sequence, last_sequence)
  if stored_at then
    return { codes.NONE, stored_at, -1, log.start, -1, 0 }
  end
  local error = nil
  if verdict == "fenced" then
    error = codes.INVALID_PRODUCER_EPOCH
  elseif verdict == "old" then
    error = codes.DUPLICATE_SEQUENCE_NUMBER
  elseif verdict == "gap" then
    error = codes.OUT_OF_ORDER_SEQUENCE_NUMBER
  elseif not producer_state.may_append(known, epoch, transaction) then
    error = codes.INVALID_TXN_STATE
  end
  if error then
    return { error, -1, -1, log.start, -1, 0 }
  end
  if transaction >= 0 and not (known and known.first and known.first >= 0) then
    -- The transaction's first batch here is written to it last: raise now if it is no sorted set.
    redis.call("ZCARD", log.open_txns)
  end
  return nil, nil, known
end

--- Set the producer's state after a batch at `base`; `text` and `known` are check_producer's.
function M.update_producer(log, args, at, base, text, known)
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
    local oldest = redis.call("ZRANGE", log.open_txns, 0, 0, "WITHSCORES")
    redis.call("HSET", log.hash, "stable", oldest[2])
  end
end

-- Number the foreign entries above `next`, if an append at `base` would not fail in spite of them.
-- Return whether all are numbered.
local function number_before(log, base)
  local unit = 2 ^ log.bits
  local is_next = not log.map
    and (log.mode ~= "time" or math.floor(base / unit) == math.floor((log.next - 1) / unit))
  if not log.is_record or log.is_numbered or is_next then
    return true
  end
  local last = not log.map and log.next > 0 and entry_id.id("time", log.bits, log.next - 1)
  if last and not entry_id.has_above(log.stream, last) then
    log.is_numbered = true
    return true
  end
  return M.number(log)
end

--- Number the foreign entries above `next`. Return whether all are.
function M.number(log)
  local numbering = require("lib.numbering")
  open_map(log)
  log.is_numbered = numbering.number(log)
  log.changed = true
  open_map(log)
  return log.is_numbered
end

-- Add the batch's entries from offset `base` on. Return the log end offset before them and the
-- offset of the first, or nil if there are too many foreign entries to number. If foreign entries
-- were added after `next`, the first XADD fails with nothing written, and the batch goes after the
-- stream's last id.
local function add_entries(log, base, offsets, add, add_rest)
  if not number_before(log, base) then
    return nil
  end
  if log.next > base then
    base = log.next
  end
  if log.map then
    local numbering = require("lib.numbering")
    numbering.check_room(log)
    base = math.max(base, log.map:least_append())
  end
  local most = log.map and log.map:top() and entry_id.LAST or entry_id.NATURAL_END
  local added = base <= most - offsets and add(redis.pcall, base)
  if not added or type(added) == "table" and added.err then
    local numbering = require("lib.numbering")
    if log.is_record and not log.is_numbered and not M.number(log) then
      return nil
    end
    open_map(log)
    numbering.pass_last(log, base, offsets)
    open_map(log)
    numbering.check_room(log)
    base = math.max(base, log.next, log.map:least_append())
    if base > entry_id.LAST - offsets then
      error("the offsets of " .. log.stream .. " are exhausted by its last entry", 0)
    end
    add(redis.call, base)
    numbering.keep_times(log)
  end
  log.is_numbered = true
  if log.map and log.map:note_append(base) then
    log.is_shifted = true
  end
  if add_rest then
    add_rest(base)
  end
  return log.next, base
end

--- Append the batch whose arguments are args[at..last], or nothing; `last` may be left out. Return
--- log.append's reply.
function M.put(log, args, at, last)
  last = last or #args
  local count, size, newest = tonumber(args[at]), tonumber(args[at + 1]), tonumber(args[at + 2])
  -- Entries may repeat the first and the third as they are given.
  if not (count and size and newest and size >= 0 and size < 2 ^ 53 and size % 1 == 0
    and newest <= 2 ^ 63 and string.find(args[at + 2], "^%-?%d+$")
    and (count >= 1 or count == 0 and log.mode == "bytes")
    and count <= 2 ^ 31 and string.find(args[at], "^%d+$")) then
    error("no batch: count, size or max_timestamp is invalid", 0)
  end
  if newest > FAR then
    newest, args[at + 2] = FAR, num.text(FAR)
  end
  local now_ms = log.now_ms
  newest = log.stamp and now_ms or newest
  -- A base_sequence that is no number counts as one here, and check_producer rejects it.
  local idempotent, rejected, text, known = not ((tonumber(args[at + 5]) or 0) < 0), nil, nil, nil
  if idempotent then
    rejected, text, known = M.check_producer(log, args, at)
    if rejected then
      return rejected
    end
  end
  local words, from, once = args, at, nil
  if log.dedupe then
    local dedupe = require("lib.dedupe")
    once = dedupe.find(log, args, at, last, count)
  end
  if once and not log.is_due and (once.is_long or idempotent and transaction_of(args, at) >= 0) then
    return { codes.INVALID_RECORD, -1, -1, log.start, -1, 0 }
  end
  if once and once.left_out > 0 then
    words, last, count, size = once:rest(args, at, size)
    from = 1
  end
  if count == 0 and once then
    local first = once:note(-1)
    if idempotent then
      M.update_producer(log, args, at, first, text, known)
    end
    return { codes.NONE, first, -1, log.start, -1, 0 }
  end
  local offsets, entries, largest, add, add_rest =
    log.writer.read(log, words, from, last, count, size)
  if not offsets then
    error("no batch: its fields are not those of " .. args[at] .. " records", 0)
  end
  local latest
  if log.table then
    local topic_table = require("lib.topic_table")
    local is_transactional = idempotent and transaction_of(args, at) >= 0
    latest = topic_table.read(log, words, from, count, is_transactional)
    local refused, offset = latest:refusal()
    if refused then
      return { refused, offset, -1, log.start, -1, 0 }
    end
  end
  local index_row = log.bytes - log.indexed >= INDEX_BYTES or log.indexed < 0
  if index_row then
    -- Raise an error if it is no sorted set, before the first write.
    redis.call("ZCARD", log.index)
  end

  local base = log.next
  if log.mode == "time" and not log.is_later_part then
    base = math.max(base, now_ms * 2 ^ log.bits)
  end
  local before
  before, base = add_entries(log, base, offsets, add, add_rest)
  if not before then
    return { codes.KAFKA_STORAGE_ERROR, -1, -1, log.start, -1, 0 }
  end
  if latest then
    latest:put(before, base, offsets)
  end
  if index_row then
    -- A batch without timestamps counts as being as old as its append.
    redis.call(
      "ZADD", log.index, base,
      num.text(base) .. ":" .. num.text(math.max(log.newest, log.untimed)) .. ":"
        .. num.text(log.bytes) .. ":" .. num.text(log.records)
    )
    log.indexed = log.bytes
  end
  local first = once and once:note(base) or base
  if idempotent then
    M.update_producer(log, args, at, first, text, known)
  end
  log.next, log.bytes, log.records = base + offsets, log.bytes + size, log.records + count
  if newest < 0 then
    log.untimed, log.was_untimed = math.max(log.untimed, now_ms), true
  end
  log.newest = math.max(log.newest, newest)
  log.largest, log.entries = math.max(log.largest, largest), log.entries + entries
  log.changed = true
  if once and once.left_out > 0 then
    before = -1
  end
  return { codes.NONE, first, before, log.start, log.stamp and now_ms or -1, 1 }
end

--- Write the state of producers, and if a batch was appended, the log's state; publish its end.
function M.close(log)
  for id, text in pairs(log.known) do
    redis.call("HSET", log.producers, id, text)
  end
  if not log.changed then
    return
  end
  redis.call(
    "HSET", log.hash, "next", log.next, "bytes", log.bytes, "records", log.records,
    "max_timestamp", log.newest, "indexed_bytes", log.indexed, "largest_append", log.largest,
    "entries", log.entries
  )
  if log.is_table_moved then
    redis.call("HSET", log.hash, "table", log.table)
  end
  if log.was_untimed or log.is_shifted then
    local numbering = require("lib.numbering")
    numbering.save_changes(log)
  end
  redis.call("PUBLISH", log.stream, log.next)
end

return M
