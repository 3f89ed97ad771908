--- Offsets that wait in a group for the end of transactions.
---
--- One hash a group. "<producer id>": "round epoch open time", the producer's newest transaction here.
--- "<producer id> <stream key>": the commit that waits.
local num = require("lib.num")

local M = {}

-- Of so many producers the ones not heard of for long are forgotten: longer than a request that was
-- sent before its transaction ended can be on the way.
local MANY, SOME = 1000, 20
local LONG_MS, DAY_MS = 3600000, 86400000

--- The newest transaction of a producer as {round, epoch, open}, or nil.
function M.last(txn_offsets, producer_id)
  local text = redis.call("HGET", txn_offsets, producer_id)
  if not text then
    return nil
  end
  local round, epoch, open = string.match(text, "^(%d+) (%d+) (%d) ")
  return { round = tonumber(round), epoch = tonumber(epoch), open = open == "1" }
end

--- Whether any transaction is open here.
function M.is_open(txn_offsets)
  local cursor = "0"
  repeat
    local page = redis.call("HSCAN", txn_offsets, cursor, "COUNT", 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      if string.match(page[2][i], "^%d+$") and string.match(page[2][i + 1], "^%d+ %d+ 1 ") then
        return true
      end
    end
  until cursor == "0"
  return false
end

--- That is the producer's newest transaction from now on.
function M.turn(txn_offsets, producer_id, round, epoch, open, now_ms)
  redis.call(
    "HSET", txn_offsets, producer_id,
    num.text(round) .. " " .. num.text(epoch) .. " " .. (open and "1 " or "0 ") .. num.text(now_ms)
  )
end

--- The producer's commits no longer wait: stream key and commit, flat.
function M.take(txn_offsets, producer_id)
  local rows, prefix = {}, producer_id .. " "
  for _, field in ipairs(redis.call("HKEYS", txn_offsets)) do
    if string.sub(field, 1, #prefix) == prefix then
      rows[#rows + 1] = string.sub(field, #prefix + 1)
      rows[#rows + 1] = redis.call("HGET", txn_offsets, field)
      redis.call("HDEL", txn_offsets, field)
    end
  end
  return rows
end

--- The group is gone: no commit waits any more. Which transactions there were is known for a day:
--- offsets that come late would wait for an end that has been, and count with the producer's next one.
function M.leave(txn_offsets)
  for _, field in ipairs(redis.call("HKEYS", txn_offsets)) do
    if string.find(field, " ", 1, true) then
      redis.call("HDEL", txn_offsets, field)
    end
  end
  redis.call("PEXPIRE", txn_offsets, DAY_MS)
end

--- Of many producers some are looked at, and forgotten where their last transaction ended long ago.
--- That is for whoever adds a producer: more are looked at than come, so that not many are left.
function M.prune(txn_offsets, now_ms)
  if redis.call("HLEN", txn_offsets) <= MANY then
    return
  end
  local flat = redis.call("HRANDFIELD", txn_offsets, SOME, "WITHVALUES")
  for i = 1, #flat, 2 do
    local open, time = string.match(flat[i + 1], "^%d+ %d+ (%d) (%d+)$")
    if open == "0" and string.match(flat[i], "^%d+$") and now_ms - tonumber(time) > LONG_MS then
      redis.call("HDEL", txn_offsets, flat[i])
    end
  end
end

return M
