--- Commands with more arguments than Lua's stack holds (some 8,000 values): several calls.
local M = {}

-- Arguments of one call. An even number: a field and its value stay together.
local SIZE = 2000

--- Run the command on the key with values[from..]. Return the sum of the replies.
function M.call(command, key, values, from)
  local sum = 0
  for first = from or 1, #values, SIZE do
    local last = math.min(first + SIZE - 1, #values)
    sum = sum + redis.call(command, key, unpack(values, first, last))
  end
  return sum
end

--- Return the reply of a command that reads values[1..] of the key, such as HMGET, as one list.
function M.list(command, key, values)
  local list = {}
  for first = 1, #values, SIZE do
    local last = math.min(first + SIZE - 1, #values)
    local part = redis.call(command, key, unpack(values, first, last))
    for i = 1, #part do
      list[#list + 1] = part[i]
    end
  end
  return list
end

return M
