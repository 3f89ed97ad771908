--- What a partition remembers of a producer: its epoch, its last five batches, its transaction.
---
--- One hash field a producer: "epoch:next:time_ms:first-last-base,first-last-base,...", the sequence it
--- goes on with (-1: with 0; -2: a transaction was begun or ended here before anything came of this
--- producer, which may have been forgotten) and its batches, newest last, five of them, empty while there are fewer;
--- and of a transactional producer "@round:first" behind it: the number of its newest transaction here, and that one's first offset,
--- JOINED before there is any, ENDED once its marker has been.
--- Sequences wrap at 2^31 (Kafka's DefaultRecordBatch.incrementSequence).
local num = require("lib.num")

local M = {}

M.JOINED = -1
M.ENDED = -2

local WRAP = 2147483648
local ANEW, ANYWHERE = -1, -2
local NO_BATCHES = ",,,,"

--- The last sequence of a batch of `count` records that starts at `first`.
function M.last_sequence(first, count)
  return (first + count - 1) % WRAP
end

--- The stored text as a table {epoch, next, time, list, round, first, anywhere}, or nil for a producer
--- never seen here; `list` is the text of its batches, `next` is nil without any, and then `anywhere`
--- says that there may have been some before; round and first are nil without transactions.
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
    anywhere = not has_batches and tonumber(next_sequence) == ANYWHERE,
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
  if not state.next or first == state.next then
    return nil
  end
  local wanted = "," .. num.text(first) .. "-" .. num.text(last) .. "-"
  local list = "," .. state.list
  local _, found = string.find(list, wanted, 1, true)
  return found and tonumber(string.match(list, "^%d+", found + 1))
end

--- "ok", "fenced" (an older epoch), "old" (stored before what is remembered), "gap", or "anywhere":
--- the producer goes on here, unless it was refused what comes before this.
--- A producer never seen here may begin anywhere, as far as its sequence tells.
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
    return first == 0 and "ok" or state.anywhere and "anywhere" or "gap"
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

--- Whether a batch may be appended as far as transactions go; `transaction` is that of log.append.
--- The epoch is known not to be fenced. Records of a transaction whose end Redis lost are not taken into
--- another one: its producer is refused, and the marker of its abort ends both.
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
    return not open or state.first == M.JOINED
  end
  return transaction == state.round and open and state.epoch == epoch
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

--- The state once a batch of `count` records stands at `base`; `first` is its sequence as text.
--- `transaction` is that of log.append.
function M.appended(state, epoch, first, count, base, transaction)
  local last = M.last_sequence(tonumber(first), count)
  local round, at = M.transaction_after(state, transaction, base)
  local list = state and state.epoch == epoch and state.list or NO_BATCHES
  list = string.sub(list, string.find(list, ",", 1, true) + 1)
    .. "," .. first .. "-" .. num.small(last) .. "-" .. num.text(base)
  return { epoch = epoch, next = (last + 1) % WRAP, list = list, round = round, first = at }
end

--- The text to store for a state.
function M.text(state, now_ms)
  local text = num.small(state.epoch) .. ":"
    .. num.small(state.next or state.anywhere and ANYWHERE or ANEW) .. ":"
    .. num.small(now_ms) .. ":" .. state.list
  if state.round then
    text = text .. "@" .. num.text(state.round) .. ":" .. num.text(state.first)
  end
  return text
end

--- The text to store when a transaction begins or ends here, at an epoch not below the known one.
function M.turn(state, epoch, now_ms, round, at)
  local goes_on = state and state.epoch == epoch
  return M.text({
    epoch = epoch, next = goes_on and state.next or nil, list = goes_on and state.list or NO_BATCHES,
    round = round, first = at, anywhere = not state or goes_on and state.anywhere,
  }, now_ms)
end

return M
