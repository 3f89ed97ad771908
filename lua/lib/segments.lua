--- The manifest of a partition: a sorted set of segments by first offset.
---
--- Member: "first:span:records before:records:bytes before:size:footer:newest:id". The last offset
--- is first + span; size and footer are bytes of the object and of its end behind the batches;
--- newest is the newest timestamp. Segments are numbered from 0, and removed in that order only: a
--- segment's number is its rank plus the log's `segments_removed`.
---
--- The last one of 16 segments, of 256 and of 4096 also has the newest timestamp of those: ":" and
--- a number for each. So a search by time reads few members, in whatever order timestamps are.
local num = require("lib.num")

local M = {}

local FAN, LEVELS = 16, 3
local ROW = "^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):%d+:(%-?%d+):[^:]+(.*)$"

--- Parse a member into a table {member, first, last, before, records, bytes_before, size, newest,
--- newest_of}, the latter by level: 1 for 16 segments, 2 for 256.
function M.parse(member)
  local first, span, before, records, bytes_before, size, newest, more = string.match(member, ROW)
  local newest_of = {}
  for each in string.gmatch(more, "%-?%d+") do
    newest_of[#newest_of + 1] = tonumber(each)
  end
  return {
    member = member,
    first = tonumber(first),
    last = tonumber(first) + tonumber(span),
    before = tonumber(before),
    records = tonumber(records),
    bytes_before = tonumber(bytes_before),
    size = tonumber(size),
    newest = tonumber(newest),
    newest_of = newest_of,
  }
end

--- Return a member. `tail` is "footer:newest:id", `newest_of` as M.parse returns it.
function M.member(first, last, before, records, bytes_before, size, tail, newest_of)
  local parts = {
    num.text(first), num.text(last - first), num.text(before), num.text(records),
    num.text(bytes_before), num.text(size), tail,
  }
  for _, newest in ipairs(newest_of) do
    parts[#parts + 1] = num.text(newest)
  end
  return table.concat(parts, ":")
end

--- Return footer bytes and newest timestamp of a member's tail.
function M.tail(text)
  local footer, newest = string.match(text, "^(%d+):(%-?%d+):")
  return tonumber(footer), tonumber(newest)
end

local function at(segments, rank)
  return M.parse(redis.call("ZRANGE", segments, rank, rank)[1])
end

--- Return `newest_of` for the next segment, with that rank and number. At most 31 calls.
function M.newest_of(segments, rank, number, newest)
  local found, size = {}, 1
  for level = 1, LEVELS do
    if (number + 1) % (size * FAN) ~= 0 or rank + 1 < size * FAN then
      break
    end
    local best = found[level - 1] or newest
    if level == 1 then
      for _, member in ipairs(redis.call("ZRANGE", segments, rank - FAN + 1, rank - 1)) do
        best = math.max(best, M.parse(member).newest)
      end
    else
      for i = 1, FAN - 1 do
        best = math.max(best, at(segments, rank - i * size).newest_of[level - 1])
      end
    end
    found[level], size = best, size * FAN
  end
  return found
end

--- Remove the segments of these members from the log; their objects are kept for `delay_ms`.
function M.remove(log, segments, deleted_segments, members, now_ms, delay_ms)
  for _, member in ipairs(members) do
    redis.call("ZREM", segments, member)
    redis.call("ZADD", deleted_segments, num.text(now_ms + delay_ms), member)
  end
  if #members > 0 then
    redis.call("HINCRBY", log, "segments_removed", #members)
  end
end

--- Return the members whose objects may be deleted now, at most `most`.
function M.due(deleted_segments, now_ms, most)
  return redis.call(
    "ZRANGEBYSCORE", deleted_segments, "-inf", num.text(now_ms), "LIMIT", 0, most
  )
end

--- Visit segments from the oldest on: `visit(newest, segment)` gets the newest timestamp of one
--- segment, or of several with nil. It returns true to skip these, else they are visited one by
--- one; false for one segment ends the walk.
function M.walk(segments, removed, visit)
  local count, rank = redis.call("ZCARD", segments), 0
  while rank < count do
    local step = nil
    for level = LEVELS, 0, -1 do
      local size = FAN ^ level
      if (rank + removed) % size == 0 and rank + size <= count then
        local row = at(segments, rank + size - 1)
        local newest = level == 0 and row.newest or row.newest_of[level]
        if newest and visit(newest, level == 0 and row or nil) then
          step = size
          break
        end
      end
    end
    if not step then
      return
    end
    rank = rank + step
  end
end

return M
