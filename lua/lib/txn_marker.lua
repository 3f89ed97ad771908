--- The end of a transaction in a partition's log.
local codes = require("lib.codes")
local entry_id = require("lib.entry_id")
local num = require("lib.num")
local producer_state = require("lib.producer_state")

local M = {}

--- The log behind the KEYS of log.write_txn_marker as a table; nil and a lib.codes value when `topic_id` does not
--- own it. `stable` is -1 when no transaction is open.
function M.open(keys, topic_id)
  local row = redis.call(
    "HMGET", keys[2], "topic_id", "mode", "bits", "next", "start", "bytes", "entries", "stable"
  )
  if not row[1] then
    return nil, codes.UNKNOWN_TOPIC_OR_PARTITION
  end
  if row[1] ~= topic_id then
    return nil, codes.UNKNOWN_TOPIC_ID
  end
  return {
    stream = keys[1], hash = keys[2], producers = keys[3], open_txns = keys[4], aborted_txns = keys[5],
    mode = row[2], bits = tonumber(row[3]), next = tonumber(row[4]), start = row[5],
    bytes = tonumber(row[6]), entries = tonumber(row[7]), stable = tonumber(row[8] or "-1"),
  }
end

--- Where the records of the producer's open transaction begin, or a little before, nil for none. A
--- version before log.begin_txn 2 could take one that was left open for over, with readers before it.
function M.first(log, id, known)
  if producer_state.is_open(known) and known.first ~= producer_state.NO_RECORDS then
    return known.first
  end
  return tonumber(redis.call("ZSCORE", log.open_txns, id) or nil)
end

--- The producer's transaction of number `round` is over here; `known` is what was remembered of it.
--- args[fields..] is the marker's entry, which counts for `size` bytes. Returns where it stands, -1
--- where the transaction has no records here and so no marker, and the last stable offset after it.
function M.put(log, id, known, epoch, round, committed, size, args, fields, now_ms)
  local turn = producer_state.with_transaction(
    known, math.max(epoch, known and known.epoch or 0), now_ms, round, producer_state.ENDED
  )
  local first = M.first(log, id, known)
  if not first then
    redis.call("HSET", log.producers, id, turn)
    return -1, log.stable
  end
  -- Both raise where that is no sorted set, before the first write.
  local oldest = redis.call("ZRANGE", log.open_txns, 0, 1, "WITHSCORES")
  local stable = tonumber(oldest[oldest[1] == id and 4 or 2] or "-1")
  if not committed then
    redis.call("ZCARD", log.aborted_txns)
  end

  local at, untimed = log.next, {}
  if log.mode == "time" then
    at = math.max(at, now_ms * 2 ^ log.bits)
  end
  local added = redis.pcall(
    "XADD", log.stream, entry_id.id(log.mode, log.bits, at), unpack(args, fields)
  )
  if type(added) == "table" and added.err then
    local stream_end = require("lib.stream_end")
    at = math.max(at, stream_end.behind_all(log.mode, log.bits, log.stream))
    redis.call("XADD", log.stream, entry_id.id(log.mode, log.bits, at), unpack(args, fields))
    if log.mode ~= "time" then
      -- How old the native entries before it are, nothing else tells.
      untimed = { "untimed_append_ms", now_ms }
    end
  end
  -- Not before the marker stands: who could not write it finds the transaction open when it tries again.
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
    "stable", stable, unpack(untimed)
  )
  redis.call("PUBLISH", log.stream, at + 1)
  return at, stable
end

return M
