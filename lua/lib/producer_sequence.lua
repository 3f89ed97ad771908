--- The usual case of an idempotent batch, without the rest of lib.producer_state, which is costly to make:
--- the next one of a producer that never had a transaction here.
local num = require("lib.num")

local M = {}

local WRAP = 2147483648
--- Whether a batch of this epoch and sequence, both as text, is the next one, and no more is to say.
function M.follows(text, epoch, sequence)
  return string.find(text, epoch .. ":" .. sequence .. ":", 1, true) == 1
    and not string.find(text, "@", 1, true)
end

--- The text once that batch, of `count` records, stands at `base`.
function M.after(text, epoch, sequence, count, base, now_ms)
  local last = (tonumber(sequence) + count - 1) % WRAP
  local kept = string.sub(text, string.find(text, ",", 1, true) + 1)
  return epoch .. ":" .. num.small((last + 1) % WRAP) .. ":" .. num.small(now_ms) .. ":" .. kept
    .. "," .. sequence .. "-" .. num.small(last) .. "-" .. num.text(base)
end

return M
