--- The sparse index of a partition: a sorted set whose members describe the log before an offset.
---
--- Score: the offset of the first batch after a step. Member: "offset:newest:bytes:records", where
--- newest is the greatest timestamp, and bytes and records are the totals, of everything below
--- the offset. All four never decrease from one member to the next: each allows a binary search.
local M = {}

--- Parse a member into a table {offset, newest, bytes, records}.
function M.parse(member)
  local offset, newest, bytes, records = string.match(member, "^(%d+):(%-?%d+):(%d+):(%d+)$")
  return {
    offset = tonumber(offset),
    newest = tonumber(newest),
    bytes = tonumber(bytes),
    records = tonumber(records),
  }
end

--- Return the last member for which `before(member)` holds, or nil. It must hold for a prefix.
function M.last(index, before)
  local low, high, found = 0, redis.call("ZCARD", index) - 1, nil
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local row = M.parse(redis.call("ZRANGE", index, middle, middle)[1])
    if before(row) then
      found, low = row, middle + 1
    else
      high = middle - 1
    end
  end
  return found
end

--- Return the bytes and records ever appended below an offset, which is not below the local start,
--- and the last member at or below it, or nil. Between two members they are those of the first one.
function M.totals_below(index, log, offset)
  local row = M.last(index, function(candidate)
    return candidate.offset <= offset
  end)
  local state = redis.call(
    "HMGET", log, "next", "bytes", "records", "start_bytes", "start_records"
  )
  if offset >= tonumber(state[1]) then
    return tonumber(state[2]), tonumber(state[3]), row
  end
  local bytes, records = tonumber(state[4]), tonumber(state[5])
  if row then
    bytes, records = math.max(bytes, row.bytes), math.max(records, row.records)
  end
  return bytes, records, row
end

return M
