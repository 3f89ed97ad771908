--- Entry ids and offsets, the arithmetic between them (data.md, section 3).
---
--- time   id = (offset >> bits) "-" (offset & (2^bits - 1)): the id's milliseconds are Redis's clock.
--- dense  id = DENSE "-" offset. The milliseconds lie far in the future on purpose: a plain
---        `XADD stream *` on such a stream takes the last id plus one, which is the next dense offset.
--- bytes  as dense; the offset is a byte position.
local num = require("lib.num")

local M = {}

M.DENSE = "1000000000000000"
local DENSE_PREFIX = M.DENSE .. "-"
local LAST_SEQUENCE = "18446744073709551615"
local BEFORE_DENSE = "999999999999999-" .. LAST_SEQUENCE

--- The id of the entry that holds `offset`.
function M.id(mode, bits, offset)
  if mode == "time" then
    local unit = 2 ^ bits
    local ms = math.floor(offset / unit)
    return num.text(ms) .. "-" .. num.text(offset - ms * unit)
  end
  return DENSE_PREFIX .. num.text(offset)
end

--- `id` for a run of offsets: a function that keeps what neighbours share.
function M.namer(mode, bits)
  if mode ~= "time" then
    return function(offset)
      return DENSE_PREFIX .. (offset < 1e14 and num.small(offset) or num.text(offset))
    end
  end
  local unit, ms, prefix = 2 ^ bits, -1, nil
  return function(offset)
    local here = math.floor(offset / unit)
    if here ~= ms then
      ms, prefix = here, num.text(here) .. "-"
    end
    return prefix .. num.small(offset - here * unit)
  end
end

--- The offset an id stands for, or nil where the id has none of its own.
function M.offset(mode, bits, id)
  local ms, seq = string.match(id, "^(%d+)%-(%d+)$")
  if mode == "time" then
    local unit = 2 ^ bits
    local sequence = tonumber(seq)
    if sequence >= unit then
      return nil
    end
    return tonumber(ms) * unit + sequence
  end
  if ms ~= M.DENSE then
    return nil
  end
  return tonumber(seq)
end

--- The lowest offset that lies behind an id, whether or not the id has an offset of its own.
function M.behind(mode, bits, id)
  local own = M.offset(mode, bits, id)
  if own then
    return own + 1
  end
  if mode ~= "time" then
    return 0
  end
  return (tonumber(string.match(id, "^(%d+)")) + 1) * 2 ^ bits
end

--- A stream exists at `stream` whose next automatic id is dense offset 0. (The group is nobody's.)
function M.open_dense(stream)
  redis.call("XGROUP", "CREATE", stream, BEFORE_DENSE, "$", "MKSTREAM")
  redis.call("XGROUP", "DESTROY", stream, BEFORE_DENSE)
  redis.call("XSETID", stream, BEFORE_DENSE)
end

return M
