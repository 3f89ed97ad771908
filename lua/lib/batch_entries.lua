--- Layout `batch`: one entry per record batch, whose id is that of the batch's last offset.
local entry_limits = require("lib.entry_limits")

local M = {}

--- Read a batch for lib.append: args[at + 7..last] are the batch alone, or all of its entry's
--- fields and values.
function M.read(log, args, at, last, count, size)
  local first = at + 7
  local fields = last - first + 1
  if fields < 1 or fields > 1 and fields % 2 == 1 then
    return nil
  end
  entry_limits.check(fields)
  local stream, stamp = log.stream, log.stamp and log.now_ms
  local function add(call, base)
    local id = log.id_of(base + count - 1)
    if fields > 1 then
      if stamp then
        return call("XADD", stream, id, "append.time", stamp, unpack(args, first, last))
      end
      return call("XADD", stream, id, unpack(args, first, last))
    end
    -- The entry has count and max_timestamp exactly as given.
    if stamp then
      return call(
        "XADD", stream, id, "append.time", stamp, "batch", args[first], "count", args[at],
        "max.timestamp", args[at + 2]
      )
    end
    return call(
      "XADD", stream, id, "batch", args[first], "count", args[at], "max.timestamp", args[at + 2]
    )
  end
  return count, 1, size, add
end

return M
