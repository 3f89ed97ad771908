--- transaction.init  version 1  writes
--- Give a transactional id's producer an id and an epoch that fences earlier producers of the id.
---
--- KEYS     transaction     hash    state of the transactional id
--- ARGV     timeout_ms      int     how long its transactions may stay open
---          producer_id     int=-1  the producer id the client has, -1 for none
---          producer_epoch  int=-1  the epoch it has, -1 for none
---          fresh_id        int=-1  an unused producer id, -1 until the reply asks for one
---          seen_epoch      int=-2  the epoch in the reply to an earlier call of the request, -2 in
---                                  the first call
--- RETURNS  error           int     a lib.codes value
---          producer_id     int     -1 on an error
---          producer_epoch  int     with fresh 1, and CONCURRENT_TRANSACTIONS, the id's epoch so
---                                  far; -1 for none, and on another error
---          fresh           int     1: nothing was written, call again with an unused producer id
--- REFUSES  PRODUCER_FENCED NOT_COORDINATOR
--- SIGNALS  CONCURRENT_TRANSACTIONS
--- FULL     is_known: the state of an id that exists is replaced
--- COST     O(1), at most 3 calls
--- NOTES    CONCURRENT_TRANSACTIONS: a transaction was open, and its abort is decided now, or one
---          is ending. The caller completes it and calls again.
---          NOT_COORDINATOR: between two calls of the request another one has set the epoch. The
---          client of this one has repeated it, or another producer of the id has begun.
local codes = require("lib.codes")
local clock = require("lib.clock")
local txn_state = require("lib.txn_state")

local transaction = KEYS[1]
local timeout_ms, producer_id = tonumber(ARGV[1]), tonumber(ARGV[2])
local epoch, fresh_id, seen_epoch = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local FIRST = -2

-- Check.
local t = txn_state.read(transaction)
if seen_epoch ~= FIRST and seen_epoch ~= (t and t.epoch or -1) then
  return { codes.NOT_COORDINATOR, -1, -1, 0 }
end
if not t then
  if fresh_id < 0 then
    return { codes.NONE, -1, -1, 1 }
  end
elseif producer_id >= 0 then
  -- The previous epoch is a retry of a request whose reply was lost. If a transaction is open, the
  -- producer has received that reply, and this request is an old one that was delayed.
  local again = epoch == t.last_epoch and t.state ~= "Ongoing"
  local current = producer_id == t.producer_id and (epoch == t.epoch or again)
  local rotated = producer_id == t.previous_id and again and epoch >= txn_state.EXHAUSTED
  if not current and not rotated then
    return { codes.PRODUCER_FENCED, -1, -1, 0 }
  end
end
local is_known = t ~= nil

-- Write.
local now_ms = clock.now_ms()
if not t then
  t = {
    producer_id = fresh_id, epoch = 0, last_epoch = -1, previous_id = -1, next_id = -1, round = 0,
  }
elseif txn_state.is_ending(t) then
  return { codes.CONCURRENT_TRANSACTIONS, -1, t.epoch, 0 }
elseif t.state == "Ongoing" then
  txn_state.fence(t, now_ms)
  if producer_id == t.producer_id then
    -- A producer that has fenced only itself may retry with the epoch it knows.
    t.last_epoch = epoch
  end
  txn_state.write(transaction, t)
  return { codes.CONCURRENT_TRANSACTIONS, -1, t.epoch, 0 }
elseif producer_id >= 0 and epoch == t.last_epoch and epoch ~= t.epoch
  and t.epoch <= txn_state.EXHAUSTED then
  return { codes.NONE, t.producer_id, t.epoch, 0 }
elseif t.epoch >= txn_state.EXHAUSTED then
  if fresh_id < 0 then
    return { codes.NONE, -1, t.epoch, 1 }
  end
  t.previous_id, t.producer_id = t.producer_id, fresh_id
  t.last_epoch, t.epoch = producer_id >= 0 and epoch or -1, 0
else
  t.last_epoch, t.epoch = producer_id >= 0 and t.epoch or -1, t.epoch + 1
end
t.state, t.timeout_ms, t.started, t.updated = "Empty", timeout_ms, -1, now_ms
txn_state.write(transaction, t)
return { codes.NONE, t.producer_id, t.epoch, 0 }
