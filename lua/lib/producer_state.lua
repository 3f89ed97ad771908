--- A producer's state in a partition: its epoch, its last five batches, its transaction.
---
--- One hash field per producer: "epoch:next:time_ms:batches", for a transactional producer followed
--- by "@round:first".
---   next     its next sequence; -1: 0 is next; -2: a transaction began or ended here before any
---            batch of this producer, whose state may have expired: any sequence is next
---   batches  "first-last-base,...", the sequences and the first offset of the last five, newest
---            last; empty items while there are fewer; base -1: without consecutive offsets
---   round    the number of its newest transaction here
---   first    that transaction's first offset; NO_RECORDS before there is one, ENDED after its
---            marker
--- Sequences wrap at 2^31 (Kafka's DefaultRecordBatch.incrementSequence).
local num = require("lib.num")

local M = {}

M.NO_RECORDS = -1
M.ENDED = -2

local WRAP = 2147483648
local FROM_ZERO, ANY_SEQUENCE = -1, -2
local NO_BATCHES = ",,,,"

--- Return the last sequence of a batch of `count` records that starts at `first`.
function M.last_sequence(first, count)
  return (first + count - 1) % WRAP
end

--- Parse the stored text into {epoch, next, time, list, round, first, expired}, nil for no text.
--- `list` is the text of the batches. Without batches `next` is nil, and `expired` says that there
--- may have been some before. Without transactions round and first are nil.
function M.read(text)
  if not text then
    return nil
  end
  local epoch, next_sequence, time, list = string.match(text, "^(%-?%d+):(%-?%d+):(%d+):(.*)$")
  local round, at
  local cut = string.find(list, "@", 1, true)
  if cut then
    round, at = string.match(list, "^(%d+):(%-?%d+)$", cut + 1)
    list = string.sub(list, 1, cut - 1)
  end
  local has_batches = list ~= NO_BATCHES
  return {
    epoch = tonumber(epoch), next = has_batches and tonumber(next_sequence) or nil,
    time = tonumber(time), list = list, round = tonumber(round), first = tonumber(at),
    expired = not has_batches and tonumber(next_sequence) == ANY_SEQUENCE,
  }
end

--- Return whether the producer has an open transaction here, with or without records.
function M.is_open(state)
  return state ~= nil and state.first ~= nil and state.first ~= M.ENDED
end

--- Return the base offset of the stored batch with these sequences, or nil.
function M.duplicate_of(state, epoch, first, last)
  if not state or state.epoch ~= epoch then
    return nil
  end
  if not state.next or first == state.next then
    return nil
  end
  local wanted = "," .. num.text(first) .. "-" .. num.text(last) .. "-"
  local list = "," .. state.list
  local _, found = string.find(list, wanted, 1, true)
  return found and tonumber(string.match(list, "^%-?%d+", found + 1))
end

--- Return "ok", "fenced" (an older epoch), "old" (a duplicate older than the last five), "gap",
--- or "expired": in order, unless an earlier batch of the producer was rejected. A producer without
--- state is "ok" at any sequence.
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
  if not state.next then
    return first == 0 and "ok" or state.expired and "expired" or "gap"
  end
  if first == state.next then
    return "ok"
  end
  local newest = (state.next - 1) % WRAP
  local oldest = tonumber(string.match(state.list, "^%d+"))
  if first <= newest and newest - first < WRAP / 2 and oldest and first < oldest then
    return "old"
  end
  return "gap"
end

--- Return whether the producer's transactions allow a batch; `transaction` is log.append's. The
--- epoch is not fenced. If Redis lost the end of a transaction, records of the next one are
--- rejected, and the abort marker of that one ends both.
function M.may_append(state, epoch, transaction)
  local open = M.is_open(state)
  if transaction < 0 then
    return not open
  end
  if transaction == 0 then
    return open and state.epoch == epoch
  end
  if not state or not state.round then
    return true
  end
  if transaction > state.round then
    return not open or state.first == M.NO_RECORDS
  end
  return transaction == state.round and open and state.epoch == epoch
end

--- Return round and first offset of the producer's transaction after a batch at `base`.
function M.transaction_after(state, transaction, base)
  if transaction < 0 then
    return state and state.round, state and state.first
  end
  if transaction > 0 and (not state or state.round ~= transaction) then
    return transaction, base
  end
  return state.round, state.first == M.NO_RECORDS and base or state.first
end

--- Return the state after a batch of `count` records at `base`; `first` is its sequence as text,
--- `transaction` is that of log.append.
function M.appended(state, epoch, first, count, base, transaction)
  local last = M.last_sequence(tonumber(first), count)
  local round, at = M.transaction_after(state, transaction, base)
  local list = state and state.epoch == epoch and state.list or NO_BATCHES
  list = string.sub(list, string.find(list, ",", 1, true) + 1)
    .. "," .. first .. "-" .. num.small(last) .. "-" .. num.text(base)
  return { epoch = epoch, next = (last + 1) % WRAP, list = list, round = round, first = at }
end

--- Return the text to store for a state.
function M.text(state, now_ms)
  local text = num.small(state.epoch) .. ":"
    .. num.small(state.next or state.expired and ANY_SEQUENCE or FROM_ZERO) .. ":"
    .. num.small(now_ms) .. ":" .. state.list
  if state.round then
    text = text .. "@" .. num.text(state.round) .. ":" .. num.text(state.first)
  end
  return text
end

--- Return the text to store when a transaction begins or ends, at the stored epoch or a higher.
function M.with_transaction(state, epoch, now_ms, round, at)
  local continues = state and state.epoch == epoch
  return M.text({
    epoch = epoch, next = continues and state.next or nil,
    list = continues and state.list or NO_BATCHES, round = round, first = at,
    expired = not state or continues and state.expired,
  }, now_ms)
end

return M
