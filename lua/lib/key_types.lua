--- What keys hold, asked before a script writes: where one is somebody else's, nothing has changed.
local M = {}

local function ask(command, key)
  local found = redis.pcall(command, key)
  if type(found) == "table" then
    error(found.err .. ": " .. key, 0)
  end
end

--- Raises, naming the key, unless each of keys[from..to] is a hash or nothing.
function M.hashes(keys, from, to)
  for i = from, to do
    ask("HLEN", keys[i])
  end
end

--- The same of one sorted set.
function M.zset(key)
  ask("ZCARD", key)
end

return M
