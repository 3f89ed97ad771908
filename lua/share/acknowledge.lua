--- share.acknowledge  version 1  writes
--- Acknowledge records that a member of a share group has acquired: all of a step, or none.
---
--- KEYS     log             hash   the partition's state
---          share           hash   share group -> end of its state, epoch, counters
---          share_runs      zset   the groups' available and acquired records
--- ARGV     group           id     the encoded group id
---          member          text   the member that has acquired the records
---          topic_id        text   the topic id the caller expects, 32 hex digits
---          lock_ms         int    how long the member may keep renewed records, in ms
---          delivery_limit  int    deliveries of a record at most
---          backoff_ms      int    delay of a record that is released after its first delivery
---          max_backoff_ms  int    the longest delay; it doubles with each delivery
---          dead_letters    int=0  1: archived records become dead letters
---          fenced          int=0  1: for steps that write other keys, see NOTES
---          first...        int    the first offset of each range, ascending
---          last...         int    the last offset of the range
---          type...         int    0 gap, 1 accept, 2 release, 3 reject, 4 renew
--- RETURNS  error           int    a lib.codes value
---          dead_letters    int    dead letters that are not copied yet
---          next            int    the offset to continue from in another call; -1: all are done
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID INVALID_REQUEST INVALID_RECORD_STATE
--- FULL     always: runs of share.partition.max.record.locks records at most
--- COST     O(runs in the ranges), at most 9 calls + 2 per range + 2 per page
--- NOTES    A step is 1,000 runs: then `next` is the offset of the first record that is left.
---          INVALID_RECORD_STATE: a record is not acquired by the member, or its lock has expired.
---          INVALID_REQUEST: a range ends above the records with a state, if there are any.
---          UNKNOWN_TOPIC_OR_PARTITION too if the group has no state here. As in Kafka, offsets
---          below the start offset are passed; with `fenced` they are INVALID_RECORD_STATE, so that
---          a step which Redis runs twice is refused. With `fenced` a record is the member's until
---          share.acquire or share.release frees it, also if its lock has expired before. Publishes
---          the group on the channel with the name of `share` if records became available, if the
---          group was full, or if an earlier record of their key kept records from being acquired.
local codes = require("lib.codes")
local share_acknowledge = require("lib.share_acknowledge")

-- Check.
local plan = share_acknowledge.plan(KEYS, ARGV)
if plan.error ~= codes.NONE then
  return { plan.error, 0, -1 }
end

-- Write.
share_acknowledge.write(plan)
return { codes.NONE, plan.state.dead - plan.state.copied, plan.next }
