--- What is known of a transactional id, and how it moves from one state to the next.
---
--- A hash: state (Kafka's names), producer_id, epoch, last_epoch, previous_id (the producer id before
--- the epochs ran out), next_id (the one after, while a transaction ends), round (how many
--- transactions there have been), timeout_ms, started and updated (ms).
---
---   Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing
---                    -> PrepareAbort  -> CompleteAbort  -> Ongoing
--- InitProducerId leads from Empty and Complete* to Empty. What Prepare* says is decided for good.
local M = {}

M.LAST_EPOCH = 32767
--- Producers are given epochs below this one; a coordinator fences with those above.
M.EXHAUSTED = 32766

--- The hash as a table with numbers, or nil for an id nobody has used.
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

--- The table stands in the hash.
function M.write(key, t)
  redis.call(
    "HSET", key, "state", t.state, "producer_id", t.producer_id, "epoch", t.epoch,
    "last_epoch", t.last_epoch, "previous_id", t.previous_id,
    "next_id", t.next_id, "round", t.round,
    "timeout_ms", t.timeout_ms, "started", t.started,
    "updated", t.updated
  )
end

--- Whether the end is decided and not yet everywhere.
function M.is_ending(t)
  return t.state == "PrepareCommit" or t.state == "PrepareAbort"
end

--- An open transaction is to be aborted, and its producer is fenced.
function M.fence(t, now_ms)
  t.state, t.updated, t.last_epoch = "PrepareAbort", now_ms, -1
  t.epoch = math.min(t.epoch + 1, M.LAST_EPOCH)
end

return M
