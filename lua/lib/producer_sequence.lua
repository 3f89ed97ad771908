--- The usual idempotent batch: the next one of a producer that never had a transaction here. Redis
--- creates a library's functions at each call, so this one leaves out the rest of
--- lib.producer_state.
local num = require("lib.num")

local M = {}

local WRAP = 2147483648

--- Return whether a batch of this epoch and sequence, both as text, is that next one.
function M.follows(text, epoch, sequence)
  return string.find(text, epoch .. ":" .. sequence .. ":", 1, true) == 1
    and not string.find(text, "@", 1, true)
end

--- Return the text to store after that batch, of `count` records, at `base`.
function M.after(text, epoch, sequence, count, base, now_ms)
  local last = (tonumber(sequence) + count - 1) % WRAP
  local kept = string.sub(text, string.find(text, ",", 1, true) + 1)
  return epoch .. ":" .. num.small((last + 1) % WRAP) .. ":" .. num.small(now_ms) .. ":" .. kept
    .. "," .. sequence .. "-" .. num.small(last) .. "-" .. num.text(base)
end

return M
