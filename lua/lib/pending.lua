--- Offsets that wait in a group for the end of transactions.
---
--- One hash a group. "<producer id>": "round epoch open time", the producer's newest transaction here.
--- "<producer id> <stream key>": the commit that waits.
local num = require("lib.num")

local M = {}

-- Of so many producers the ones not heard of for long are forgotten: longer than a request that was
-- sent before its transaction ended can be on the way.
local MANY = 1000
local LONG_MS = 3600000

--- The newest transaction of a producer as {round, epoch, open}, or nil.
function M.last(waiting, producer_id)
  local text = redis.call("HGET", waiting, producer_id)
  if not text then
    return nil
  end
  local round, epoch, open = string.match(text, "^(%d+) (%d+) (%d) ")
  return { round = tonumber(round), epoch = tonumber(epoch), open = open == "1" }
end

--- Whether any transaction is open here.
function M.is_open(waiting)
  local flat = redis.call("HGETALL", waiting)
  for i = 1, #flat, 2 do
    if string.match(flat[i], "^%d+$") and string.match(flat[i + 1], "^%d+ %d+ 1 ") then
      return true
    end
  end
  return false
end

--- That is the producer's newest transaction from now on.
function M.turn(waiting, producer_id, round, epoch, open, now_ms)
  redis.call(
    "HSET", waiting, producer_id,
    num.text(round) .. " " .. num.text(epoch) .. " " .. (open and "1 " or "0 ") .. num.text(now_ms)
  )
end

--- The producer's commits no longer wait: stream key and commit, flat.
function M.take(waiting, producer_id)
  local rows, prefix = {}, producer_id .. " "
  for _, field in ipairs(redis.call("HKEYS", waiting)) do
    if string.sub(field, 1, #prefix) == prefix then
      rows[#rows + 1] = string.sub(field, #prefix + 1)
      rows[#rows + 1] = redis.call("HGET", waiting, field)
      redis.call("HDEL", waiting, field)
    end
  end
  return rows
end

--- Producers whose last transaction ended long ago are forgotten, once there are many. It reads all
--- that waits, so that is for whoever adds a producer.
function M.prune(waiting, now_ms)
  if redis.call("HLEN", waiting) <= MANY then
    return
  end
  local flat, gone = redis.call("HGETALL", waiting), {}
  for i = 1, #flat, 2 do
    local open, time = string.match(flat[i + 1], "^%d+ %d+ (%d) (%d+)$")
    if open == "0" and string.match(flat[i], "^%d+$") and now_ms - tonumber(time) > LONG_MS then
      gone[#gone + 1] = flat[i]
    end
  end
  for from = 1, #gone, 1000 do
    redis.call("HDEL", waiting, unpack(gone, from, math.min(from + 999, #gone)))
  end
end

return M
