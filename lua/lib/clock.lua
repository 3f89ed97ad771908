--- Time, from Redis alone: brokers cannot disagree about it.
local M = {}

--- Milliseconds since 1970. Each call asks Redis again; within one script the answer stays the same.
function M.now_ms()
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

return M
