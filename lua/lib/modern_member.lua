--- The stored row of a member of a modern group: six numbers, then packed words.
---
--- The row of a streams group's member also has process id, user endpoint, client tags and topology
--- epoch. Lists of partitions stay encoded (lib.partition_list), names are packed.
local num = require("lib.num")
local pack = require("lib.pack")

local M = {}

local NUMBERS = { "epoch", "previous", "converged", "session", "rebalance", "revoke_by" }
local WORDS = {
  "instance", "rack", "client_id", "client_host", "assignor", "regex", "names", "assigned",
  "revoking",
}
local STREAMS_WORDS = { "process", "endpoint", "tags", "topology_epoch" }
-- What grows with the assignment, which other limits bound.
local ASSIGNED = { assigned = true, revoking = true }
local HEAD = "^(%-?%d+) (%d+) ([01]) (%d+) (%d+) (%d+) "

-- What a topic's name counts at least: to assign it costs as much, however short it is.
local NAME_BYTES = 34

--- Return the bytes that the member adds to those of its group: all words but its assignment.
function M.bytes(m)
  local _, count = string.gsub(m.names or "", ":", "")
  local sum = math.max(0, NAME_BYTES * count - #(m.names or ""))
  for _, list in ipairs({ WORDS, STREAMS_WORDS }) do
    for _, name in ipairs(list) do
      sum = sum + (ASSIGNED[name] and 0 or #(m[name] or ""))
    end
  end
  return sum
end

--- Return the row of a member that has joined and has no assignment yet. `counted`: the bytes of
--- its stored row, as the group counts them.
function M.new(is_streams)
  local m = {
    epoch = 0, previous = 0, converged = false, session = 0, rebalance = 0, revoke_by = 0,
    counted = 0,
  }
  for _, name in ipairs(WORDS) do
    m[name] = ""
  end
  for _, name in ipairs(is_streams and STREAMS_WORDS or {}) do
    m[name] = name == "topology_epoch" and "0" or ""
  end
  return m
end

--- Parse a row, nil for none.
function M.parse(text)
  if not text then
    return nil
  end
  local m, at = {}, 1
  local _, last, epoch, previous, converged, session, rebalance, revoke_by = string.find(text, HEAD)
  m.epoch, m.previous, m.converged = tonumber(epoch), tonumber(previous), converged == "1"
  m.session, m.rebalance, m.revoke_by = tonumber(session), tonumber(rebalance), tonumber(revoke_by)
  local list = pack.unpack(string.sub(text, last + 1))
  for _, name in ipairs(WORDS) do
    m[name], at = list[at], at + 1
  end
  for _, name in ipairs(list[at] and STREAMS_WORDS or {}) do
    m[name], at = list[at], at + 1
  end
  m.counted = M.bytes(m)
  return m
end

--- Return a row's epoch and whether the member has converged, without parsing the rest.
function M.parse_epoch(text)
  local epoch, converged = string.match(text, "^(%-?%d+) %d+ ([01]) ")
  return tonumber(epoch), converged == "1"
end

--- Return the row as text.
function M.format(m)
  local list, words = {}, {}
  for i, name in ipairs(NUMBERS) do
    list[i] = name == "converged" and (m.converged and "1" or "0") or num.text(m[name])
  end
  for i, name in ipairs(WORDS) do
    words[i] = m[name]
  end
  for _, name in ipairs(m.process and STREAMS_WORDS or {}) do
    words[#words + 1] = m[name]
  end
  return table.concat(list, " ") .. " " .. pack.pack(words)
end

return M
