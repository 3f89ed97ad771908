--- A field of a hash that keeps its first value.
local M = {}

--- Return the field's value, after storing the given one if there is none. Only then: Redis rejects
--- a write at maxmemory, and a broker must start then too.
function M.once(key, field, value)
  local known = redis.call("HGET", key, field)
  if not known then
    redis.call("HSET", key, field, value)
  end
  return known or value
end

return M
