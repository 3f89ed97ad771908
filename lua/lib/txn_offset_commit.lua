--- The offsets of a group that wait for the end of transactions (TxnOffsetCommit).
---
--- Two hashes per group.
---
--- txn_offsets  producer id -> "number epoch open time_ms pending" of its newest transaction in the
---              group; `pending`: how many pending commits it has
--- txn_pending  "<producer id> <stream key>" -> a pending commit; "<producer id> <n>" -> the stream
---              key of the n-th, from 1 to `pending`. Some may be missing, after the group was
---              deleted
local chunks = require("lib.chunks")
local num = require("lib.num")

local M = {}

-- Above MANY producers, SOME are checked per new producer and removed if their last transaction
-- ended LONG_MS ago: longer than a request sent before that end can be under way.
local MANY, SOME = 1000, 20
local LONG_MS, DAY_MS = 3600000, 86400000

--- Return the producer's newest transaction as {number, epoch, open, pending}, or nil.
function M.last(key, producer_id)
  local text = redis.call("HGET", key, producer_id)
  if not text then
    return nil
  end
  local number, epoch, open, pending = string.match(text, "^(%d+) (%d+) (%d) %d+ (%d+)$")
  return {
    number = tonumber(number), epoch = tonumber(epoch), open = open == "1",
    pending = tonumber(pending),
  }
end

--- Return whether any transaction is open in the group.
function M.is_open(key)
  local cursor = "0"
  repeat
    local page = redis.call("HSCAN", key, cursor, "COUNT", 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      if string.match(page[2][i + 1], "^%d+ %d+ 1 ") then
        return true
      end
    end
  until cursor == "0"
  return false
end

--- Store the producer's newest transaction.
function M.put_last(key, producer_id, number, epoch, open, now_ms, pending)
  redis.call(
    "HSET", key, producer_id,
    num.text(number) .. " " .. num.text(epoch) .. " " .. (open and "1 " or "0 ") .. num.text(now_ms)
      .. " " .. num.small(pending)
  )
end

--- Add pending commits, stream key and commit, flat, to a producer's `count`. Return the new count.
function M.add(pending, producer_id, count, flat)
  local names, prefix = {}, producer_id .. " "
  for i = 1, #flat, 2 do
    if redis.call("HSET", pending, prefix .. flat[i], flat[i + 1]) == 1 then
      count = count + 1
      names[#names + 1], names[#names + 2] = prefix .. num.small(count), flat[i]
    end
  end
  chunks.call("HSET", pending, names)
  return count
end

--- Remove and return the last `most` of a producer's `count` pending commits, as stream keys and
--- commits.
function M.take(pending, producer_id, count, most)
  local prefix, names, fields = producer_id .. " ", {}, {}
  for n = math.max(count - most, 0) + 1, count do
    fields[#fields + 1] = prefix .. num.small(n)
  end
  for _, name in ipairs(chunks.list("HMGET", pending, fields)) do
    names[#names + 1] = name or nil
  end
  local own = {}
  for i, name in ipairs(names) do
    own[i] = prefix .. name
  end
  local commits = chunks.list("HMGET", pending, own)
  chunks.call("HDEL", pending, fields)
  chunks.call("HDEL", pending, own)
  return names, commits
end

--- Remove all pending commits of a deleted group. The newest transactions are kept for a day: late
--- offsets of one that has ended would wait for its end again, and be committed with the producer's
--- next transaction.
function M.delete_group(key, pending)
  redis.call("UNLINK", pending)
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
    local open, time = string.match(flat[i + 1], "^%d+ %d+ (%d) (%d+) ")
    if open == "0" and now_ms - tonumber(time) > LONG_MS then
      redis.call("HDEL", key, flat[i])
    end
  end
end

return M
