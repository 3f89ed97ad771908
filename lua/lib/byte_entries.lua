--- Layout `bytes` (offset.mode=bytes): each entry takes as many offsets as it has bytes in Kafka
--- 0.7, and its id is that of the last offset.
local entry_limits = require("lib.entry_limits")

local M = {}

--- Read a batch for lib.append: args[at + 7..last] are, for each entry, the number of its offsets,
--- the number of its fields and values, then those.
function M.read(log, args, at, last)
  local spans, total, largest, from = {}, 0, 0, at + 7
  while from <= last do
    local offsets, fields = tonumber(args[from]), tonumber(args[from + 1])
    if not (offsets and offsets >= 1 and fields and fields >= 2 and fields % 2 == 0) then
      return nil
    end
    entry_limits.check(fields)
    total, largest = total + offsets, math.max(largest, offsets)
    spans[#spans + 1] = { total - 1, from + 2, from + 1 + fields }
    from = from + 2 + fields
  end
  if from ~= last + 1 or #spans == 0 then
    return nil
  end
  local stream, stamp = log.stream, log.stamp and log.now_ms
  local function add_span(call, base, span)
    local id = log.id_of(base + span[1])
    if stamp then
      return call("XADD", stream, id, "append.time", stamp, unpack(args, span[2], span[3]))
    end
    return call("XADD", stream, id, unpack(args, span[2], span[3]))
  end
  local function add(call, base)
    return add_span(call, base, spans[1])
  end
  local function add_rest(base)
    for n = 2, #spans do
      add_span(redis.call, base, spans[n])
    end
  end
  return total, #spans, largest, add, add_rest
end

return M
