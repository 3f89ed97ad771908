--- group.commit_owned  version 1  writes
--- Commit offsets of partitions that a member of a consumer group owns, or refuse all of them.
---
--- KEYS     consumer_members  hash   KIP-848: member id -> epoch, subscription and partitions
---          partition_owners  hash   KIP-848: partition -> epoch and member id of its owner
---          offsets           hash   `korvet:<topic>:<p>` -> commit (lib.offset_commit)
--- ARGV     member            text   the member id
---          epoch             int    its member epoch
---          field...          text   a partition's stream key
---          from...           text   the committed offset from which the member began to read, -1:
---                                   none, empty: any
---          offset...         bytes  the offset, digits
---          topic...          text   topic id, 32 hex digits
---          metadata...       text   the client's metadata
--- RETURNS  error             int    a lib.codes value
--- REFUSES  UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH INVALID_RECORD_STATE
--- FULL     always: one commit per partition of a group that exists
--- COST     O(partitions), at most 4 calls + 4 per field
--- NOTES    For steps in which applications write other keys, too. It looks at no deadline and
---          needs no tick: a member whose session has expired may commit until it is removed, and
---          no other member owns its partitions before. INVALID_RECORD_STATE: the committed offset
---          is not `from`. So a step that is repeated, or that Redis executes late, commits
---          nothing. Without rows it only checks the member's epoch.
local codes = require("lib.codes")
local owned_commit = require("lib.owned_commit")

local members, owners, offsets = KEYS[1], KEYS[2], KEYS[3]

local verdict = owned_commit.check(members, owners, offsets, ARGV)
if verdict ~= codes.NONE then
  return { verdict }
end

-- Write.
owned_commit.put(offsets, ARGV)
return { codes.NONE }
