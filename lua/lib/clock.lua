--- The time of the Redis server: the only clock, so that brokers cannot differ.
local M = {}

local now_ms

--- Return ms since 1970, one value for the whole script: only the first call is a command.
function M.now_ms()
  if not now_ms then
    local time = redis.call("TIME")
    now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  return now_ms
end

--- Read the time again at the next call: a Redis function keeps its libraries between its calls.
function M.forget()
  now_ms = nil
end

-- The clock can be set back. What waits for a moment then would wait for the whole step. So a state
-- with such moments has a mark: when one was set last, in steps of STEP_MS, which saves writes. If
-- the mark is ahead of the clock, its moments are too, and are moved back by as much.
local STEP_MS = 5000

--- Return the mark of a state whose moments are set now.
function M.mark(now)
  return math.ceil(now / STEP_MS) * STEP_MS
end

--- Return the ms by which the moments of a state with that mark are ahead: 0 unless the clock was
--- set back since. Never more than the step, and STEP_MS less at most.
function M.ahead_ms(mark, now)
  return math.max(0, mark - STEP_MS - now)
end

-- Max duration of a lease in ms, unless a caller asks for more.
local LONGEST_MS = 60000

--- Return whether a lease of other holders ends now or earlier. One that ends further ahead than a
--- lease lasts is from before a backward step of the clock: its holder may have died long ago.
function M.is_over(ends_ms, now, ttl_ms)
  return ends_ms <= now or ends_ms > now + math.max(ttl_ms, LONGEST_MS)
end

--- Return a moment at least `ms` from now, and less than a tenth of that later. It changes in steps
--- of that tenth: Redis writes nothing to its file and replicas if a score is set to its current
--- value.
function M.about(now, ms)
  local step = math.max(math.floor(ms / 10), 1)
  return math.ceil((now + ms) / step) * step
end

return M
