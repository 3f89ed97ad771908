--- The deadlines of a group: a sorted set, member id or phase -> moment, ms.
---
--- Every script on a group checks them first and answers TICK_FIRST if one has passed: so no
--- decision counts a member whose session has expired. They answer it too if the clock was set back
--- (lib.clock): the tick then moves the deadlines back.
---
--- The zsets of due groups and transactional ids are kept alike.
local clock = require("lib.clock")
local num = require("lib.num")

local M = {}

-- The entry that makes group.tick expire committed offsets of an Empty group.
M.OFFSETS = ":offsets"
-- Ms from the moment a group becomes Empty to its first such check, which knows the retention.
M.OFFSETS_CHECK_MS = 60000

-- The entry with the mark of lib.clock. Its moment is FAR above: it is the last, and never due.
M.CLOCK = ":clock"
local FAR = 2 ^ 50
local PAGE = 1000

--- Return the earliest entry and its moment; nothing if there is none.
function M.first(deadlines)
  local row = redis.call("ZRANGE", deadlines, 0, 0, "WITHSCORES")
  if row[1] and row[1] ~= M.CLOCK then
    return row[1], tonumber(row[2])
  end
end

--- Return the ms until the earliest deadline: -1 without any, 0 if it has passed.
function M.wait_ms(deadlines, now_ms)
  local _, moment = M.first(deadlines)
  return moment and math.max(0, moment - now_ms) or -1
end

--- Return the ms by which deadlines are ahead because the clock was set back, else 0.
function M.ahead_ms(deadlines, now_ms)
  local mark = redis.call("ZSCORE", deadlines, M.CLOCK)
  return mark and clock.ahead_ms(tonumber(mark) - FAR, now_ms) or 0
end

--- Return whether a tick is needed first: a deadline has passed, or the clock was set back.
function M.passed(deadlines, now_ms)
  return M.wait_ms(deadlines, now_ms) == 0 or M.ahead_ms(deadlines, now_ms) > 0
end

--- Return the score of M.CLOCK after deadlines are set.
function M.mark()
  return num.text(FAR + clock.mark(clock.now_ms()))
end

--- Set a deadline.
function M.set(deadlines, name, moment)
  redis.call("ZADD", deadlines, num.text(moment), name, M.mark(), M.CLOCK)
end

--- Move all deadlines back if the clock was set back.
function M.follow_clock(deadlines, now_ms)
  local ahead_ms = M.ahead_ms(deadlines, now_ms)
  if ahead_ms == 0 then
    return
  end
  local flat = redis.call("ZRANGE", deadlines, 0, -1, "WITHSCORES")
  for i = 1, #flat, 2 do
    if flat[i] ~= M.CLOCK then
      M.set(deadlines, flat[i], tonumber(flat[i + 1]) - ahead_ms)
    end
  end
end

--- Schedule an entry of a zset of what is due. The mark stays ahead until M.follow_due has run.
function M.schedule(due, name, moment)
  redis.call("ZADD", due, num.text(moment), name)
  redis.call("ZADD", due, "GT", M.mark(), M.CLOCK)
end

--- Of a zset of what is due: if the clock was set back, make due what was scheduled before, PAGE
--- entries per call. What is due is checked, and scheduled anew.
function M.follow_due(due, now_ms)
  local mark = redis.call("ZSCORE", due, M.CLOCK)
  local ahead_ms = mark and clock.ahead_ms(tonumber(mark) - FAR, now_ms) or 0
  if ahead_ms > 0 then
    local from, to = num.text(now_ms + ahead_ms), "(" .. num.text(FAR)
    local found = redis.call("ZRANGEBYSCORE", due, from, to, "LIMIT", 0, PAGE)
    for _, name in ipairs(found) do
      redis.call("ZADD", due, num.text(now_ms), name)
    end
    if #found == PAGE then
      return
    end
  end
  local count = redis.call("ZCARD", due)
  if count > (mark and 1 or 0) then
    redis.call("ZADD", due, M.mark(), M.CLOCK)
  elseif mark then
    redis.call("ZREM", due, M.CLOCK)
  end
end

--- Schedule a check for expired offsets, unless one is scheduled.
function M.check_offsets(deadlines, now_ms)
  redis.call(
    "ZADD", deadlines, "NX", num.text(now_ms + M.OFFSETS_CHECK_MS), M.OFFSETS, M.mark(), M.CLOCK
  )
end

return M
