--- Convert between entry ids and offsets, for entries at their natural ids; lib.offset_map converts
--- all.
---
--- time   id = (offset >> bits) "-" (offset & (2^bits - 1)): the milliseconds are Redis's clock.
--- dense  id = DENSE "-" offset. Hardly an id is above these milliseconds, so a plain
---        `XADD stream *` on such a stream takes the last id plus one: the next dense offset.
--- bytes  as dense; the offset is a byte position.
local num = require("lib.num")

local M = {}

--- The largest signed integer of 64 bits: clients of Redis parse it.
M.DENSE = "9223372036854775807"
--- The end of all offsets: a double cannot represent every integer above.
M.LAST = 2 ^ 53
--- The end of the offsets of natural ids: an entry just below leaves enough for all later ones.
M.NATURAL_END = 2 ^ 53 - 2 ^ 48
local DENSE_PREFIX = M.DENSE .. "-"
local LAST_SEQUENCE = "18446744073709551615"
--- The id below all dense ids.
M.BEFORE_DENSE = "9223372036854775806-" .. LAST_SEQUENCE

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

--- Return the natural offset of an id, or nil if it has none.
function M.offset(mode, bits, id)
  local ms, seq = string.match(id, "^(%d+)%-(%d+)$")
  local sequence = tonumber(seq)
  if mode == "time" then
    local unit = 2 ^ bits
    if sequence >= unit or tonumber(ms) >= M.NATURAL_END / unit then
      return nil
    end
    return tonumber(ms) * unit + sequence
  end
  if ms ~= M.DENSE or sequence >= M.NATURAL_END then
    return nil
  end
  return sequence
end

--- Return whether the stream has an entry above an id.
function M.has_above(stream, id)
  -- From the end: the last entries of a node are found without the ones before them.
  return redis.call("XREVRANGE", stream, "+", "(" .. id, "COUNT", 1)[1] ~= nil
end

--- Create a stream whose next automatic id is dense offset 0. The group only serves MKSTREAM.
function M.open_dense(stream)
  redis.call("XGROUP", "CREATE", stream, M.BEFORE_DENSE, "$", "MKSTREAM")
  redis.call("XGROUP", "DESTROY", stream, M.BEFORE_DENSE)
  redis.call("XSETID", stream, M.BEFORE_DENSE)
end

return M
