--- Convert between entry ids and offsets.
---
--- time   id = (offset >> bits) "-" (offset & (2^bits - 1)): the milliseconds are Redis's clock.
--- dense  id = DENSE "-" offset. The milliseconds are far in the future on purpose: a plain
---        `XADD stream *` on such a stream takes the last id plus one: the next dense offset.
--- bytes  as dense; the offset is a byte position.
local num = require("lib.num")

local M = {}

M.DENSE = "1000000000000000"
local DENSE_PREFIX = M.DENSE .. "-"
local LAST_SEQUENCE = "18446744073709551615"
local BEFORE_DENSE = "999999999999999-" .. LAST_SEQUENCE

--- Return the id of the entry that holds `offset`.
function M.id(mode, bits, offset)
  if mode == "time" then
    local unit = 2 ^ bits
    local ms = math.floor(offset / unit)
    return num.text(ms) .. "-" .. num.text(offset - ms * unit)
  end
  return DENSE_PREFIX .. num.text(offset)
end

--- Return a function that converts ascending offsets to ids and reuses their common part.
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

--- Return the offset of an id, or nil if no offset has this id.
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

--- Return the lowest offset after an id, whether or not the id has an offset.
function M.offset_after(mode, bits, id)
  local own = M.offset(mode, bits, id)
  if own then
    return own + 1
  end
  if mode ~= "time" then
    return 0
  end
  return (tonumber(string.match(id, "^(%d+)")) + 1) * 2 ^ bits
end

--- Create a stream whose next automatic id is dense offset 0. The group only serves MKSTREAM.
function M.open_dense(stream)
  redis.call("XGROUP", "CREATE", stream, BEFORE_DENSE, "$", "MKSTREAM")
  redis.call("XGROUP", "DESTROY", stream, BEFORE_DENSE)
  redis.call("XSETID", stream, BEFORE_DENSE)
end

return M
