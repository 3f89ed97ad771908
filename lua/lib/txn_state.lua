--- The state of a transactional id: its hash, and the transitions between states.
---
--- Fields: state (Kafka's names), producer_id, epoch, last_epoch, previous_id (the producer id
--- before the epochs were exhausted), next_id (the next one, while a transaction ends), round (the
--- number of transactions so far), timeout_ms, started and updated (ms).
---
---   Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing
---                    -> PrepareAbort  -> CompleteAbort  -> Ongoing
--- InitProducerId changes Empty and Complete* to Empty. The decision in Prepare* is final.
local M = {}

M.LAST_EPOCH = 32767
--- A producer at this epoch or a higher one gets a new producer id instead of a higher epoch.
M.EXHAUSTED = 32766

--- Return the hash as a table with numbers, or nil for an unknown id.
function M.read(key)
  local row = redis.call(
    "HMGET", key, "state", "producer_id", "epoch", "last_epoch", "previous_id", "next_id", "round",
    "timeout_ms", "started", "updated"
  )
  if not row[1] then
    return nil
  end
  return {
    state = row[1], producer_id = tonumber(row[2]), epoch = tonumber(row[3]),
    last_epoch = tonumber(row[4]), previous_id = tonumber(row[5]), next_id = tonumber(row[6]),
    round = tonumber(row[7]), timeout_ms = tonumber(row[8]), started = tonumber(row[9]),
    updated = tonumber(row[10]),
  }
end

--- Write the table to the hash.
function M.write(key, t)
  redis.call(
    "HSET", key, "state", t.state, "producer_id", t.producer_id, "epoch", t.epoch,
    "last_epoch", t.last_epoch, "previous_id", t.previous_id,
    "next_id", t.next_id, "round", t.round,
    "timeout_ms", t.timeout_ms, "started", t.started,
    "updated", t.updated
  )
end

--- Return whether the end is decided but not complete: markers may be missing.
function M.is_ending(t)
  return t.state == "PrepareCommit" or t.state == "PrepareAbort"
end

--- Decide to abort an open transaction, and fence its producer.
function M.fence(t, now_ms)
  t.state, t.updated, t.last_epoch = "PrepareAbort", now_ms, -1
  t.epoch = math.min(t.epoch + 1, M.LAST_EPOCH)
end

return M
