--- Read a range of a stream in pages, within a budget: a script that reads more blocks Redis.
local M = {}

-- Entries of the first page, and of any page. Each page may have twice as many as the one before:
-- the size of its entries is known from those before.
local FIRST, MOST = 4, 512
-- Redis refuses a range from above the greatest id.
local ABOVE_ALL = "(18446744073709551615-18446744073709551615"

--- Return a new budget of 10,000 entries and 8 MB: reading it takes some 20 ms.
function M.budget()
  return { entries = 10000, bytes = 8388608, page = FIRST }
end

--- Call `each(entry)` for the entries from id `from` to id `to` until it returns true, or until the
--- budget is used up. Return whether all were read; if not, the id to continue at.
function M.each(stream, from, to, budget, each)
  while budget.entries > 0 and budget.bytes > 0 do
    if from == ABOVE_ALL then
      return true
    end
    local count = math.min(budget.page, budget.entries)
    local rows = redis.call("XRANGE", stream, from, to, "COUNT", count)
    local largest = 1
    for _, row in ipairs(rows) do
      local size = 0
      for _, word in ipairs(row[2]) do
        size = size + #word
      end
      budget.bytes, largest = budget.bytes - size, math.max(largest, size)
    end
    budget.entries = budget.entries - #rows
    for _, row in ipairs(rows) do
      if each(row) then
        return true
      end
    end
    if #rows < count then
      return true
    end
    from = "(" .. rows[#rows][1]
    budget.page = math.min(2 * budget.page, MOST, math.max(1, math.floor(budget.bytes / largest)))
  end
  return false, from
end

return M
