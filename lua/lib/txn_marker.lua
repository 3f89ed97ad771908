--- Write the marker of a transaction's end to a partition's log.
local codes = require("lib.codes")
local entry_id = require("lib.entry_id")
local num = require("lib.num")
local numbering = require("lib.numbering")
local offset_map = require("lib.offset_map")
local producer_state = require("lib.producer_state")

local M = {}

--- Return the log at the KEYS of log.write_txn_marker as a table, or nil and a lib.codes value if
--- its topic id differs. `stable` is -1 if no transaction is open.
function M.open(keys, topic_id)
  local row = redis.call(
    "HMGET", keys[2], "topic_id", "mode", "bits", "next", "start", "bytes", "entries", "stable",
    "shifts", "format"
  )
  if not row[1] then
    return nil, codes.UNKNOWN_TOPIC_OR_PARTITION
  end
  if row[1] ~= topic_id then
    return nil, codes.UNKNOWN_TOPIC_ID
  end
  local mode, bits = row[2], tonumber(row[3])
  return {
    stream = keys[1], hash = keys[2], producers = keys[3],
    open_txns = keys[4], aborted_txns = keys[5],
    mode = mode, bits = bits, next = tonumber(row[4]), start = tonumber(row[5]),
    bytes = tonumber(row[6]), entries = tonumber(row[7]), stable = tonumber(row[8] or "-1"),
    map = offset_map.open(mode, bits, row[9]), is_record = row[10] == "record",
  }
end

--- Return the first offset of the producer's open transaction, nil for none. If only open_txns has
--- the transaction, this is the log end offset before it.
function M.first_offset(log, id, known)
  if producer_state.is_open(known) and known.first ~= producer_state.NO_RECORDS then
    return known.first
  end
  return tonumber(redis.call("ZSCORE", log.open_txns, id) or nil)
end

--- End the producer's transaction of number `round` here; `known` is the producer's stored state.
--- args[fields..] is the marker's entry, which adds `size` bytes. Return its offset (-1 without
--- records here: then no marker is written) and the new last stable offset.
function M.write(log, id, known, epoch, round, committed, size, args, fields, now_ms)
  local turn = producer_state.with_transaction(
    known, math.max(epoch, known and known.epoch or 0), now_ms, round, producer_state.ENDED
  )
  local first = M.first_offset(log, id, known)
  if not first then
    redis.call("HSET", log.producers, id, turn)
    return -1, log.stable
  end
  -- Each raises an error, before the first write, if its key is not a sorted set.
  local oldest = redis.call("ZRANGE", log.open_txns, 0, 1, "WITHSCORES")
  local stable = tonumber(oldest[oldest[1] == id and 4 or 2] or "-1")
  if not committed then
    redis.call("ZCARD", log.aborted_txns)
  end

  if log.is_record and numbering.is_due(log) then
    local is_done = numbering.number(log)
    numbering.save(log)
    if not is_done then
      error("the entries of " .. log.stream .. " are being numbered: repeat the call", 0)
    end
  end
  local function add(call)
    numbering.check_room(log)
    local least = log.mode == "time" and now_ms * 2 ^ log.bits or 0
    local at = math.max(log.next, least, log.map:least_append())
    if at >= entry_id.NATURAL_END and not log.map:top() then
      numbering.pass_last(log, at, 1)
    end
    return call("XADD", log.stream, log.map:namer()(at), unpack(args, fields)), at
  end
  local added, at = add(redis.pcall)
  if type(added) == "table" and added.err then
    numbering.pass_last(log, log.next, 1)
    added, at = add(redis.call)
  end
  if log.map:note_append(at) or log.is_shifted then
    log.next = at + 1
    numbering.save(log)
  end
  -- Only after the marker's XADD: if that fails, the transaction is still open for a retry.
  redis.call("HSET", log.producers, id, turn)
  redis.call("ZREM", log.open_txns, id)
  if not committed then
    redis.call("ZREMRANGEBYSCORE", log.aborted_txns, "-inf", "(" .. log.start)
    redis.call(
      "ZADD", log.aborted_txns, at,
      id .. ":" .. num.text(first) .. ":" .. num.text(stable < 0 and at + 1 or stable)
    )
  end
  redis.call(
    "HSET", log.hash, "next", at + 1, "bytes", log.bytes + size, "entries", log.entries + 1,
    "stable", stable
  )
  redis.call("PUBLISH", log.stream, at + 1)
  return at, stable
end

return M
