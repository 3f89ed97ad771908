--- log.append  version 1  writes
--- One producer batch stands in the log at consecutive offsets, or nothing has changed.
---
--- KEYS     stream          stream  the partition's records
---          log             hash    the partition's state
---          index           zset    sparse index: offset -> max timestamp, bytes and records before it
---          producers       hash    producer id -> epoch, last five batches, transaction
---          open_txns       zset    producer id -> end of the log before its open transaction
--- ARGV     topic_id        bytes   the topic the caller believes in, 32 hex digits
---          stamp           int     1: LogAppendTime, the entry says when it was appended
---          count           int     records: last offset delta + 1, and so the offsets the batch takes,
---                                  but for bytes mode
---          size            int     bytes the batch counts for
---          max_timestamp   int     ms, the newest record's
---          producer_id     int     -1 without idempotence
---          producer_epoch  int     -1 without idempotence
---          base_sequence   int     -1 without idempotence
---          transaction     int     -1 in none; -2 in none, of a producer that may have been forgotten
---                                  here; 0 in the one this partition was told of (log.begin_txn), -3
---                                  the same of a producer that may have been forgotten; else the
---                                  number of the producer's transaction, begun if new here
---          fields...       bytes   batch layout: the batch alone, whose entry then tells count and
---                                  max_timestamp too, or all of the entry's fields and values;
---                                  record layout: for
---                                  each record the number of its fields and values, then those, or,
---                                  where all records have the same fields, minus their number, the
---                                  fields, then each record's values, or, shorter still, the word
---                                  columns, the number of fields, and for each of these its name,
---                                  how long every value is or -1, the lengths where they differ
---                                  (one byte each, or four, lowest first; nobody adds them up: values
---                                  are cut by what they say), all values one behind another;
---                                  bytes mode: for each entry the offsets it takes, the number of
---                                  its fields and values, then those
--- RETURNS  error           int     a lib.codes value
---          base            int     the first offset, -1 when refused
---          previous        int     the end of the log before it, -1 when nothing was appended
---          start           int     log start offset
---          append_time     int     ms of Redis's clock, -1 without LogAppendTime
---          stored          int     1 appended now, 0 a duplicate of what was stored before
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID UNKNOWN_PRODUCER_ID INVALID_PRODUCER_EPOCH
---          DUPLICATE_SEQUENCE_NUMBER OUT_OF_ORDER_SEQUENCE_NUMBER INVALID_TXN_STATE
--- COST     O(records), at most 14 calls + 1 per entry
--- NOTES    A native XADD may stand behind `next`; then the first XADD fails with nothing written,
---          and the batch goes behind the stream's last id.
---          A producer unknown here begins at sequence 0. UNKNOWN_PRODUCER_ID: or it was forgotten, if
---          no batch before this one is on its way, which the caller knows; then -2 takes it, and -3
---          where the partition knows no more of it than transactions. Spark's writers, from id 2^51 on, and transactions whose number is told are never forgotten:
---          Redis lost their first batch, or refused it (OUT_OF_ORDER_SEQUENCE_NUMBER).
---          In batch layout and in bytes mode an entry's id is that of the last offset it takes.
---          Without transactions `open_txns` is never touched, and `stable` of the state is absent: the end
---          of the log before the oldest open transaction, -1 when none is open. In time mode offsets
---          jump: a reader that has all before the transaction stands there, and not at its first.
local append = require("lib.append")
local clock = require("lib.clock")

local log, refusal = append.open(KEYS, 1, ARGV[1], ARGV[2] == "1", clock.now_ms())
if not log then
  return { refusal, -1, -1, -1, -1, 0 }
end

-- Write. A batch that is refused has written nothing.
local answer = append.put(log, ARGV, 3, #ARGV)
append.close(log)
return answer
