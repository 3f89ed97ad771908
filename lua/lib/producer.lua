--- What a partition remembers of a producer: its epoch, its last five batches, its transaction.
---
--- One hash field a producer: "epoch:time_ms:first-last-base,first-last-base,...", newest last, and of
--- a transactional producer "@round:first" behind it: the number of its newest transaction here, and
--- that one's first offset, JOINED before there is any, ENDED once its marker has been.
--- Sequences wrap at 2^31 (Kafka's DefaultRecordBatch.incrementSequence).
local num = require("lib.num")

local M = {}

M.JOINED = -1
M.ENDED = -2

local KEPT = 5
local WRAP = 2147483648

--- The last sequence of a batch of `count` records that starts at `first`.
function M.last_sequence(first, count)
  return (first + count - 1) % WRAP
end

--- The stored text as a table {epoch, time, batches, round, first}, or nil for a producer never seen
--- here; round and first are nil without transactions.
function M.read(text)
  if not text then
    return nil
  end
  local epoch, time, rest = string.match(text, "^(%-?%d+):(%d+):(.*)$")
  local batches = {}
  for first, last, base in string.gmatch(rest, "(%d+)%-(%d+)%-(%d+)") do
    batches[#batches + 1] = { tonumber(first), tonumber(last), tonumber(base) }
  end
  local round, at = string.match(rest, "@(%d+):(%-?%d+)$")
  return {
    epoch = tonumber(epoch), time = tonumber(time), batches = batches, round = tonumber(round),
    first = tonumber(at),
  }
end

--- Whether a transaction of the producer is open here, with or without records yet.
function M.is_open(state)
  return state ~= nil and state.first ~= nil and state.first ~= M.ENDED
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
  if not newest then
    return first == 0 and "ok" or "gap"
  end
  if first == (newest[2] + 1) % WRAP then
    return "ok"
  end
  if first <= newest[2] and newest[2] - first < WRAP / 2 and #state.batches == KEPT
    and first < state.batches[1][1] then
    return "old"
  end
  return "gap"
end

--- Whether a batch may be appended as far as transactions go; `transaction` is that of log.append.
--- The epoch is known not to be fenced.
function M.may_append(state, epoch, transaction)
  local open = M.is_open(state)
  if transaction < 0 then
    return not open
  end
  if transaction == 0 then
    return open and state.epoch == epoch
  end
  if not state or not state.round or transaction > state.round then
    return true
  end
  return transaction == state.round and open
end

--- Round and first offset of the producer's transaction once a batch stands at `base`.
function M.transaction_after(state, transaction, base)
  if transaction < 0 then
    return state and state.round, state and state.first
  end
  if transaction > 0 and (not state or state.round ~= transaction) then
    return transaction, base
  end
  return state.round, state.first == M.JOINED and base or state.first
end

local function text_of(epoch, now_ms, batches, round, at)
  local text = num.text(epoch) .. ":" .. num.text(now_ms) .. ":" .. table.concat(batches, ",")
  if round then
    text = text .. "@" .. num.text(round) .. ":" .. num.text(at)
  end
  return text
end

local function kept_of(state, epoch, room)
  local kept = {}
  if state and state.epoch == epoch then
    for i = math.max(1, #state.batches - room + 1), #state.batches do
      local batch = state.batches[i]
      kept[#kept + 1] = num.text(batch[1]) .. "-" .. num.text(batch[2]) .. "-" .. num.text(batch[3])
    end
  end
  return kept
end

--- The text to store once a batch is appended. `round` and `at` are nil without transactions.
function M.remember(state, epoch, now_ms, first, last, base, round, at)
  local kept = kept_of(state, epoch, KEPT - 1)
  kept[#kept + 1] = num.text(first) .. "-" .. num.text(last) .. "-" .. num.text(base)
  return text_of(epoch, now_ms, kept, round, at)
end

--- The text to store when a transaction begins or ends here, at an epoch not below the known one.
function M.turn(state, epoch, now_ms, round, at)
  return text_of(epoch, now_ms, kept_of(state, epoch, KEPT), round, at)
end

return M
