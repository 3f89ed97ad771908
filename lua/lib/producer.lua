--- What a partition remembers of an idempotent producer: its epoch and its last five batches.
---
--- One hash field a producer: "epoch:time_ms:first-last-base,first-last-base,...", newest last.
--- Sequences wrap at 2^31 (Kafka's DefaultRecordBatch.incrementSequence).
local num = require("lib.num")

local M = {}

local KEPT = 5
local WRAP = 2147483648

--- The last sequence of a batch of `count` records that starts at `first`.
function M.last_sequence(first, count)
  return (first + count - 1) % WRAP
end

--- The stored text as a table {epoch, time, batches}, or nil for a producer never seen here.
function M.read(text)
  if not text then
    return nil
  end
  local epoch, time, rest = string.match(text, "^(%-?%d+):(%d+):(.*)$")
  local batches = {}
  for first, last, base in string.gmatch(rest, "(%d+)%-(%d+)%-(%d+)") do
    batches[#batches + 1] = { tonumber(first), tonumber(last), tonumber(base) }
  end
  return { epoch = tonumber(epoch), time = tonumber(time), batches = batches }
end

--- The base offset a remembered batch got, or nil.
function M.duplicate_of(state, epoch, first, last)
  if not state or state.epoch ~= epoch then
    return nil
  end
  for i = #state.batches, 1, -1 do
    local batch = state.batches[i]
    if batch[1] == first and batch[2] == last then
      return batch[3]
    end
  end
  return nil
end

--- "ok", "fenced" (an older epoch), "old" (stored before what is remembered) or "gap".
--- A producer never seen here may begin anywhere: retention may have forgotten it (Kafka, KIP-360).
function M.judge(state, epoch, first)
  if not state then
    return "ok"
  end
  if epoch < state.epoch then
    return "fenced"
  end
  if epoch > state.epoch then
    return first == 0 and "ok" or "gap"
  end
  local newest = state.batches[#state.batches]
  if not newest or first == (newest[2] + 1) % WRAP then
    return "ok"
  end
  if first <= newest[2] and newest[2] - first < WRAP / 2 and #state.batches == KEPT
    and first < state.batches[1][1] then
    return "old"
  end
  return "gap"
end

--- The text to store once a batch is appended.
function M.remember(state, epoch, now_ms, first, last, base)
  local kept = {}
  if state and state.epoch == epoch then
    local from = #state.batches - KEPT + 2
    for i = math.max(1, from), #state.batches do
      local batch = state.batches[i]
      kept[#kept + 1] = num.text(batch[1]) .. "-" .. num.text(batch[2]) .. "-" .. num.text(batch[3])
    end
  end
  kept[#kept + 1] = num.text(first) .. "-" .. num.text(last) .. "-" .. num.text(base)
  return num.text(epoch) .. ":" .. num.text(now_ms) .. ":" .. table.concat(kept, ",")
end

return M
