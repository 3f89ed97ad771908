--- The order of a share group's records by key (share.order=key), in the rows of lib.share_runs.
---
--- A record is given to a member only if no earlier record of its key is unfinished. For each
--- unfinished record of the state, in the group's rows of the sorted set:
---   <group>:e:<offset>:<key>   the record's key
---   <group>:f:<key>:<offset>   the records of a key by offset: the first one is its head
---   <group>:g:<offset>         heads that are available
--- Keys are digests without colons.
local num = require("lib.num")

local M = {}

local PAGE = 500

local function range(state, from, to, count)
  return redis.call("ZRANGE", state.runs, from, to, "BYLEX", "LIMIT", 0, count)
end

local function head(state, key)
  local start = state.group .. ":f:" .. key .. ":"
  local text = range(state, "[" .. start, "(" .. start .. ";", 1)[1]
  return text and string.sub(text, #start + 1)
end

local function ready_text(state, offset)
  return state.group .. ":g:" .. offset
end

--- Return the first available head, or nil.
function M.first_ready(state)
  local start = state.group .. ":g:"
  local text = range(state, "[" .. start, "(" .. start .. ";", 1)[1]
  return text and tonumber(string.sub(text, #start + 1))
end

--- Add a record above the end of the state; return whether it is the head of its key.
function M.enter(state, offset, key)
  local at = num.padded(offset)
  local is_head = not head(state, key)
  redis.call(
    "ZADD", state.runs, 0, state.group .. ":e:" .. at .. ":" .. key, 0,
    state.group .. ":f:" .. key .. ":" .. at
  )
  return is_head
end

--- Acquire an available record if it is a head; return whether it is.
function M.acquire(state, offset)
  return redis.call("ZREM", state.runs, ready_text(state, num.padded(offset))) == 1
end

--- Make acquired records, which are heads, available.
function M.free(state, first, last)
  for offset = first, last do
    redis.call("ZADD", state.runs, 0, ready_text(state, num.padded(offset)))
  end
end

--- Remove finished records; return whether another record became an available head.
function M.finish(state, first, last)
  local start = state.group .. ":e:"
  local found_head = false
  repeat
    local found = range(
      state, "[" .. start .. num.padded(first), "(" .. start .. num.padded(last) .. ";", PAGE
    )
    for _, text in ipairs(found) do
      local at, key = string.match(string.sub(text, #start + 1), "^(%d+):(.*)$")
      local was_head = head(state, key) == at
      redis.call(
        "ZREM", state.runs, text, state.group .. ":f:" .. key .. ":" .. at, ready_text(state, at)
      )
      local next_head = was_head and head(state, key)
      if next_head then
        redis.call("ZADD", state.runs, 0, ready_text(state, next_head))
        found_head = true
      end
    end
  until #found < PAGE
  return found_head
end

return M
