--- The offsets of a group that wait for the end of transactions (TxnOffsetCommit).
---
--- One hash per group. "<producer id>": "number epoch open time_ms" of the producer's newest
--- transaction in the group. "<producer id> <stream key>": a pending commit.
local num = require("lib.num")

local M = {}

-- Above MANY producers, SOME are checked per new producer and removed if their last transaction
-- ended LONG_MS ago: longer than a request sent before that end can be under way.
local MANY, SOME = 1000, 20
local LONG_MS, DAY_MS = 3600000, 86400000

--- Return the producer's newest transaction as {number, epoch, open}, or nil.
function M.last(key, producer_id)
  local text = redis.call("HGET", key, producer_id)
  if not text then
    return nil
  end
  local number, epoch, open = string.match(text, "^(%d+) (%d+) (%d) ")
  return { number = tonumber(number), epoch = tonumber(epoch), open = open == "1" }
end

--- Return whether any transaction is open in the group.
function M.is_open(key)
  local cursor = "0"
  repeat
    local page = redis.call("HSCAN", key, cursor, "COUNT", 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      if string.match(page[2][i], "^%d+$") and string.match(page[2][i + 1], "^%d+ %d+ 1 ") then
        return true
      end
    end
  until cursor == "0"
  return false
end

--- Store the producer's newest transaction.
function M.put_last(key, producer_id, number, epoch, open, now_ms)
  redis.call(
    "HSET", key, producer_id,
    num.text(number) .. " " .. num.text(epoch) .. " " .. (open and "1 " or "0 ") .. num.text(now_ms)
  )
end

--- Remove and return the producer's pending commits: stream key and commit, flat.
function M.take(key, producer_id)
  local rows, prefix = {}, producer_id .. " "
  for _, field in ipairs(redis.call("HKEYS", key)) do
    if string.sub(field, 1, #prefix) == prefix then
      rows[#rows + 1] = string.sub(field, #prefix + 1)
      rows[#rows + 1] = redis.call("HGET", key, field)
      redis.call("HDEL", key, field)
    end
  end
  return rows
end

--- Remove all pending commits of a deleted group. The newest transactions are kept for a day: late
--- offsets of one that has ended would wait for its end again, and be committed with the producer's
--- next transaction.
function M.delete_group(key)
  for _, field in ipairs(redis.call("HKEYS", key)) do
    if string.find(field, " ", 1, true) then
      redis.call("HDEL", key, field)
    end
  end
  redis.call("PEXPIRE", key, DAY_MS)
end

--- Remove some producers whose last transaction ended long ago, if there are many. Called for each
--- new producer: more are checked than added, which bounds the number.
function M.prune(key, now_ms)
  if redis.call("HLEN", key) <= MANY then
    return
  end
  local flat = redis.call("HRANDFIELD", key, SOME, "WITHVALUES")
  for i = 1, #flat, 2 do
    local open, time = string.match(flat[i + 1], "^%d+ %d+ (%d) (%d+)$")
    if open == "0" and string.match(flat[i], "^%d+$") and now_ms - tonumber(time) > LONG_MS then
      redis.call("HDEL", key, flat[i])
    end
  end
end

return M
