--- The dead letters of a share group in a partition, in the rows of lib.share_runs.
---
---   <group>:d:<number>:<first>:<last>:<deliveries>:<reason>   dead letters to copy, by their
---   number
---
--- The script that archives records gives them their numbers, so that any broker copies them in one
--- order.
local chunks = require("lib.chunks")
local num = require("lib.num")

local M = {}

-- Reasons of a dead letter.
M.REJECTED, M.DELIVERED_TOO_OFTEN = 1, 2

local function prefix(state)
  return state.group .. ":d:"
end

--- Add archived records as dead letters; share_runs.flush writes them.
function M.add(state, first, last, deliveries, reason)
  local rest = num.text(deliveries) .. ":" .. num.text(reason)
  local before = state.dead_letters[#state.dead_letters]
  if before and before.last + 1 == first and before.rest == rest then
    before.last = last
  else
    state.dead_letters[#state.dead_letters + 1] = {
      number = state.dead, first = first, last = last, rest = rest,
    }
  end
  state.dead = state.dead + last - first + 1
end

--- Return the row of a run of dead letters.
function M.format(state, letter)
  return prefix(state) .. num.padded(letter.number) .. ":" .. num.text(letter.first) .. ":"
    .. num.text(letter.last) .. ":" .. letter.rest
end

--- Return at most `most` runs of dead letters, the oldest first.
function M.list(state, most)
  local start = prefix(state)
  local found = redis.call(
    "ZRANGE", state.runs, "[" .. start, "(" .. state.group .. ":e", "BYLEX", "LIMIT", 0, most
  )
  for i, text in ipairs(found) do
    local number, first, last, rest = string.match(
      string.sub(text, #start + 1), "^(%d+):(%d+):(%d+):(%d+:%d+)$"
    )
    local deliveries, reason = string.match(rest, "^(%d+):(%d+)$")
    found[i] = {
      text = text, number = tonumber(number), first = tonumber(first), last = tonumber(last),
      rest = rest, deliveries = tonumber(deliveries), reason = tonumber(reason),
    }
  end
  return found
end

--- Remove the dead letters with a number below `to`, `page` runs at a time. share_runs.flush writes
--- what is left of the last run.
function M.remove(state, to, page)
  repeat
    local removed = {}
    for _, letter in ipairs(M.list(state, page)) do
      local copied = to - letter.number
      if copied > 0 then
        removed[#removed + 1] = letter.text
        if letter.first + copied <= letter.last then
          letter.number, letter.first = to, letter.first + copied
          state.dead_letters[1] = letter
        end
      end
    end
    chunks.call("ZREM", state.runs, removed)
  until #removed < page
end

return M
