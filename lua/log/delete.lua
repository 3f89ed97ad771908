--- log.delete  version 1  writes
--- Delete everything of a partition, if it belongs to the topic.
---
--- KEYS     log                hash    the partition's state
---          stream             stream  its records
---          index              zset    its sparse index
---          producers          hash    its producers
---          open_txns          zset    its open transactions
---          aborted_txns       zset    its aborted transactions
---          compacted          stream  its compacted copy
---          segments           zset    its segments
---          deleted_segments   zset    its removed segments
---          share              hash    its share groups
---          share_runs         zset    their records
---          share_lost         string  written if members lose records
---          scheduled          zset    its scheduled records
---          scheduled_records  hash    their rows
---          scheduled_ids      hash    their ids
---          dedupe             hash    its known ids
---          dedupe_old         hash    known ids of earlier records
---          table              hash    its newest values by key
---          table_newer        zset    its newer records by key
--- ARGV     topic_id           text    the topic id the caller expects, 32 hex digits
--- RETURNS  error              int     a lib.codes value
---          deleted            int     1: deleted now; 0: it did not exist, or is another topic's
--- FULL     always: the log is removed
--- COST     O(1), at most 2 calls
--- NOTES    For Redis Cluster, where a topic's deletion takes one call per slot. UNLINK of the
---          stream removes its Redis groups too.
local codes = require("lib.codes")

local log = KEYS[1]
local topic_id = ARGV[1]

if redis.call("HGET", log, "topic_id") ~= topic_id then
  return { codes.NONE, 0 }
end

-- Write.
redis.call("UNLINK", unpack(KEYS))
return { codes.NONE, 1 }
