--- Time, from Redis alone: brokers cannot disagree about it.
local M = {}

--- Milliseconds since 1970. Each call asks Redis again; within one script the answer stays the same.
function M.now_ms()
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

--- A moment not earlier than `ms` from now, and later by less than a tenth of that. It stays the same
--- for a while, and Redis writes nothing (to its file, to replicas) when a score is set to what it is.
function M.about(now_ms, ms)
  local step = math.max(math.floor(ms / 10), 1)
  return math.ceil((now_ms + ms) / step) * step
end

return M
