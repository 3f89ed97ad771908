--- Check the types of keys before a script writes: a key of another type fails without a write.
local M = {}

local function check(command, key)
  local found = redis.pcall(command, key)
  if type(found) == "table" then
    error(found.err .. ": " .. key, 0)
  end
end

--- Raise an error with the key unless each of keys[from..to] is a hash or missing.
function M.hashes(keys, from, to)
  for i = from, to do
    check("HLEN", keys[i])
  end
end

--- Raise an error with the key unless it is a sorted set or missing.
function M.zset(key)
  check("ZCARD", key)
end

return M
