--- log.append  version 1  writes
--- Append one batch at consecutive offsets, after all entries of the log.
---
--- KEYS     stream          stream  the partition's records
---          log             hash    the partition's state
---          index           zset    sparse index: offset -> max timestamp, bytes and records before
---                                  it
---          producers       hash    producer id -> epoch, last five batches, transaction
---          open_txns       zset    producer id -> end of the log before its open transaction
---          dedupe          hash    id -> offset and time of the records that were appended since
---                                  this hash began
---          dedupe_old      hash    the same of the records before
---          table           hash    record key -> value of its newest record
---          table_newer     zset    record key -> offset of its newest record, see lib.topic_table
--- ARGV     topic_id        text    the topic's id as the caller knows it, 32 hex digits
---          stamp           int=0   1: LogAppendTime, the entry gets the field append.time; else 0.
---                                  Plus 2 for a later part of a batch, which goes directly after
---                                  the log's end
---          count           int     records: last offset delta + 1; the offsets that the batch
---                                  takes, except in bytes mode
---          size            int     bytes that the batch adds to the log's size
---          max_timestamp   int     ms, the batch's max timestamp
---          producer_id     int=-1  -1 without idempotence
---          producer_epoch  int=-1  -1 without idempotence
---          base_sequence   int=-1  -1 without idempotence
---          transaction     int=-1  -1 none; 0 the one registered by log.begin_txn; -2 and -3: the
---                                  same as -1 and 0, of a producer whose state may have expired;
---                                  else the number of the producer's transaction, which begins
---                                  here if new
---          fields...       bytes   Batch layout: the batch alone, whose entry also gets count and
---                                  max.timestamp; or all of the entry's fields and values. Record
---                                  layout: for each record the number of its fields and values,
---                                  then those. If all records have the same fields: minus the
---                                  number of fields, their names, then each record's values. Or
---                                  the word columns, the number of fields, and for each of them
---                                  its name, the length of every value or -1, the lengths if they
---                                  differ (one byte each, or four with the lowest first; their sum
---                                  is not checked), all values concatenated. Bytes mode: for each
---                                  entry the offsets it takes, the number of its fields and
---                                  values, then those
--- RETURNS  error           int     a lib.codes value
---          base            int     the first offset; -1 if the batch's records have no consecutive
---                                  offsets, or on an error. INVALID_UPDATE_VERSION: the offset of
---                                  a key's newest record, which the batch does not expect; -1
---                                  without one
---          previous        int     the log end offset before it, -1 if not all was appended
---          start           int     log start offset
---          append_time     int     ms of Redis's clock, -1 without LogAppendTime
---          stored          int     1 appended now, 0 a duplicate of a stored batch, or an error
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID UNKNOWN_PRODUCER_ID INVALID_PRODUCER_EPOCH
---          DUPLICATE_SEQUENCE_NUMBER OUT_OF_ORDER_SEQUENCE_NUMBER INVALID_TXN_STATE
---          INVALID_RECORD INVALID_UPDATE_VERSION
--- SIGNALS  KAFKA_STORAGE_ERROR
--- COST     O(records), at most 31 calls + 1 per entry + 4 per new_ms
--- NOTES    If foreign entries were added after `next`, the batch goes after the stream's last id.
---          KAFKA_STORAGE_ERROR: they are too many to number in one call; the next one continues. A
---          producer without state here starts at sequence 0. UNKNOWN_PRODUCER_ID: it starts at
---          another one. If its state may have expired (KIP-360), and no earlier batch of it is in
---          flight, the caller repeats the call with -2, or -3 in a registered transaction. The
---          state of Spark's writers (ids from 2^51 on), and of producers in a numbered
---          transaction, does not expire: OUT_OF_ORDER_SEQUENCE_NUMBER, as Redis lost or rejected
---          their first batch; nor does any producer's for a day after a leader epoch began. In
---          batch layout and in bytes mode an entry's id is that of the last offset it takes.
---          Without transactions `open_txns` is not used. `stable` of the log's state is the log
---          end offset before the oldest open transaction, -1 if none is open: in time mode offsets
---          have gaps, and that is the position of a reader that has read everything before it.
---          Records whose id is known are left out (lib.dedupe); they count as records of the batch
---          for sequences, and their offsets are those of the stored ones. INVALID_RECORD: a record
---          of a transaction has an id, or an id has more than 128 bytes. The header
---          `korvet-expected-offset` is read if the log has a table (lib.topic_table): without
---          offsets there, in a transaction, without a key or an integer it is INVALID_RECORD. If
---          the table has not all records yet, KAFKA_STORAGE_ERROR: repeat after log.fill_table.
local append = require("lib.append")
local clock = require("lib.clock")

local stamp = tonumber(ARGV[2])
local log, refusal = append.open(KEYS, 1, ARGV[1], stamp % 2 == 1, clock.now_ms())
if not log then
  return { refusal, -1, -1, -1, -1, 0 }
end

log.is_later_part = stamp >= 2

-- Write. A rejected batch writes nothing.
local answer = append.put(log, ARGV, 3, #ARGV)
append.close(log)
return answer
