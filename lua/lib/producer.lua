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

--- The stored text as a table {epoch, time, list, round, first}, or nil for a producer never seen
--- here; `list` is the text of its batches, round and first are nil without transactions.
function M.read(text)
  if not text then
    return nil
  end
  local epoch, time, list = string.match(text, "^(%-?%d+):(%d+):(.*)$")
  local round, at
  local cut = string.find(list, "@", 1, true)
  if cut then
    round, at = string.match(list, "^(%d+):(%-?%d+)$", cut + 1)
    list = string.sub(list, 1, cut - 1)
  end
  return {
    epoch = tonumber(epoch), time = tonumber(time), list = list, round = tonumber(round),
    first = tonumber(at),
  }
end

-- The last sequence of the newest batch, or nil.
local function newest_of(state)
  return tonumber(string.match(state.list, "^.*%-(%d+)%-%d+$"))
end

local function count_of(list)
  local _, commas = string.gsub(list, ",", "")
  return list == "" and 0 or commas + 1
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
  local newest = newest_of(state)
  if not newest or first == (newest + 1) % WRAP then
    return nil
  end
  local wanted = "," .. num.text(first) .. "-" .. num.text(last) .. "-"
  local list = "," .. state.list
  local _, found = string.find(list, wanted, 1, true)
  return found and tonumber(string.match(list, "^%d+", found + 1))
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
  local newest = newest_of(state)
  if not newest then
    return first == 0 and "ok" or "gap"
  end
  if first == (newest + 1) % WRAP then
    return "ok"
  end
  if first <= newest and newest - first < WRAP / 2 and count_of(state.list) == KEPT
    and first < tonumber(string.match(state.list, "^%d+")) then
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

local function text_of(epoch, now_ms, list, round, at)
  local text = num.text(epoch) .. ":" .. num.text(now_ms) .. ":" .. list
  if round then
    text = text .. "@" .. num.text(round) .. ":" .. num.text(at)
  end
  return text
end

--- The text to store once a batch is appended. `round` and `at` are nil without transactions.
function M.remember(state, epoch, now_ms, first, last, base, round, at)
  local list = num.text(first) .. "-" .. num.text(last) .. "-" .. num.text(base)
  if state and state.epoch == epoch and state.list ~= "" then
    local kept = state.list
    if count_of(kept) >= KEPT then
      kept = string.sub(kept, string.find(kept, ",", 1, true) + 1)
    end
    list = kept .. "," .. list
  end
  return text_of(epoch, now_ms, list, round, at)
end

--- The text to store when a transaction begins or ends here, at an epoch not below the known one.
function M.turn(state, epoch, now_ms, round, at)
  return text_of(epoch, now_ms, state and state.epoch == epoch and state.list or "", round, at)
end

return M
