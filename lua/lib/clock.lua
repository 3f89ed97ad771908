--- The time of the Redis server: the only clock, so that brokers cannot differ.
local M = {}

--- Return ms since 1970. Each call is a command; within one script the result does not change.
function M.now_ms()
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Max duration of a lease in ms, unless a caller asks for more.
local LONGEST_MS = 60000

--- Return whether a lease of other holders ends now or earlier. One that ends further ahead than a
--- lease lasts is from before a backward step of the clock: its holder may have died long ago.
function M.is_over(ends_ms, now_ms, ttl_ms)
  return ends_ms <= now_ms or ends_ms > now_ms + math.max(ttl_ms, LONGEST_MS)
end

--- Return a moment at least `ms` from now, and less than a tenth of that later. It changes in steps
--- of that tenth: Redis writes nothing to its file and replicas if a score is set to its current
--- value.
function M.about(now_ms, ms)
  local step = math.max(math.floor(ms / 10), 1)
  return math.ceil((now_ms + ms) / step) * step
end

return M
