--- transaction.end  version 1  writes
--- Decide how a transaction ends. The calling broker then writes the markers.
---
--- KEYS     transaction     hash    state of the transactional id
---          participants    set     partitions and groups in the open transaction
--- ARGV     producer_id     int     the calling producer
---          producer_epoch  int     its epoch
---          committed       int     1 commit, 0 abort
---          bump            int     1: the next transaction has the next epoch (KIP-890, EndTxn 5)
---          fresh_id        int=-1  an unused producer id, -1 until the reply asks for one
---          number          int=-1  the transaction that the request is about, -1: not known
--- RETURNS  error           int     a lib.codes value
---          producer_id     int     the producer id of the next transaction, -1 on an error
---          producer_epoch  int     the epoch of the next transaction, -1 on an error
---          fresh           int     1: nothing was written, call again with an unused producer id
---          pending         int     1: write the markers, then call transaction.complete
---          marker_id       int     producer id of the markers
---          marker_epoch    int     epoch of the markers
---          transaction     int     the transaction's number, -1 for an unknown id or producer
---          members         list    p:<topic>:<partition> and g:<group id>
--- REFUSES  INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED INVALID_TXN_STATE CONCURRENT_TRANSACTIONS
---          NOT_COORDINATOR
--- FULL     always: the state is replaced
--- COST     O(members), at most 4 calls
--- NOTES    NOT_COORDINATOR: another transaction is open. The request was delayed, and its client
---          has ended its transaction by another broker. Epochs say so only with `bump`.
local codes = require("lib.codes")
local clock = require("lib.clock")
local txn_state = require("lib.txn_state")

local transaction, members = KEYS[1], KEYS[2]
local producer_id, epoch = tonumber(ARGV[1]), tonumber(ARGV[2])
local committed, bump, fresh_id = ARGV[3] == "1", ARGV[4] == "1", tonumber(ARGV[5])
local number = tonumber(ARGV[6])

local function answer(code, id, its_epoch, round)
  return { code, id or -1, its_epoch or -1, 0, 0, -1, -1, round or -1, {} }
end

-- Check.
local t = txn_state.read(transaction)
if not t then
  return answer(codes.INVALID_PRODUCER_ID_MAPPING)
end
-- A retry of a request whose reply was lost: the first attempt has already raised the epoch.
local rotated = bump and t.previous_id == producer_id and t.producer_id ~= producer_id
  and epoch == t.last_epoch and t.epoch == 0
local repeated = rotated or (bump and t.epoch == epoch + 1 and t.last_epoch == epoch)
local complete = t.state == "CompleteCommit" or t.state == "CompleteAbort"
local same = t.epoch == epoch
if t.producer_id ~= producer_id and not rotated then
  return answer(codes.INVALID_PRODUCER_ID_MAPPING)
end
if bump and txn_state.is_ending(t) then
  same = repeated
elseif bump and complete then
  same = same or repeated
end
if not same then
  return answer(codes.PRODUCER_FENCED)
end
if txn_state.is_ending(t) then
  local agrees = committed == (t.state == "PrepareCommit")
  local code = agrees and codes.CONCURRENT_TRANSACTIONS or codes.INVALID_TXN_STATE
  return answer(code, -1, -1, t.round)
end
if complete and (repeated or not bump) then
  if committed ~= (t.state == "CompleteCommit") then
    return answer(codes.INVALID_TXN_STATE)
  end
  return answer(codes.NONE, t.producer_id, t.epoch)
end
-- No transaction is open. With EndTxn 5 an abort is valid then: the client needs the next epoch.
if t.state ~= "Ongoing" and (committed or not bump) then
  return answer(codes.INVALID_TXN_STATE)
end
if t.state == "Ongoing" and number >= 0 and number ~= t.round then
  return answer(codes.NOT_COORDINATOR)
end
local rotates = bump and t.epoch >= txn_state.EXHAUSTED
if rotates and fresh_id < 0 then
  return { codes.NONE, -1, -1, 1, 0, -1, -1, t.round, {} }
end
local participants = redis.call("SMEMBERS", members)

-- Write.
local now_ms = clock.now_ms()
if t.state ~= "Ongoing" then
  t.round, t.started = t.round + 1, now_ms
end
t.state, t.updated = committed and "PrepareCommit" or "PrepareAbort", now_ms
if bump then
  t.last_epoch, t.epoch = t.epoch, math.min(t.epoch + 1, txn_state.LAST_EPOCH)
end
t.next_id = rotates and fresh_id or -1
txn_state.write(transaction, t)
return {
  codes.NONE, rotates and fresh_id or t.producer_id, rotates and 0 or t.epoch, 0, 1, t.producer_id,
  t.epoch, t.round, participants,
}
