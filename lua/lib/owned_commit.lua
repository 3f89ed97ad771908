--- Commit offsets of partitions that a member of a consumer group owns (KIP-848).
---
--- args: member id, member epoch, then per partition five words: its stream key, the committed
--- offset from which the member began to read, "-1" for none and "" for any, the offset to commit,
--- the topic id, and metadata.
local clock = require("lib.clock")
local codes = require("lib.codes")
local num = require("lib.num")
local offset_commit = require("lib.offset_commit")
local partition_owners = require("lib.partition_owners")

local M = {}

local ROWS, CELLS = 3, 5

-- Return the offset that is committed for the topic with this id, "-1" for none.
local function committed(offsets, field, topic_id)
  local text = redis.call("HGET", offsets, field)
  if not text then
    return "-1"
  end
  local offset, id = string.match(text, "^(%-?%d+) %-?%d+ %-?%d+ %-?%d+ (%x*)")
  if id and id ~= "" and id ~= topic_id then
    return "-1"
  end
  return offset or text
end

--- Return a lib.codes value: whether the member may commit all rows. Without rows it is compared
--- with its present epoch.
function M.check(members, owners, offsets, args)
  local id, epoch = args[1], tonumber(args[2])
  local verdict = partition_owners.check_commit(members, owners, id, epoch, args, ROWS)
  if verdict ~= codes.NONE then
    return verdict
  end
  for i = ROWS, #args, CELLS do
    local field = args[i + 3] .. string.match(args[i], ":%d+$")
    if not partition_owners.has_owned_since(owners, id, field, epoch) then
      return codes.STALE_MEMBER_EPOCH
    end
    if args[i + 1] ~= "" and args[i + 1] ~= committed(offsets, args[i], args[i + 3]) then
      return codes.INVALID_RECORD_STATE
    end
  end
  return codes.NONE
end

--- Commit the rows.
function M.put(offsets, args)
  local now_text = num.text(clock.now_ms())
  for i = ROWS, #args, CELLS do
    redis.call(
      "HSET", offsets, args[i],
      offset_commit.format(args[i + 2], "-1", now_text, "-1", args[i + 3], args[i + 4])
    )
  end
end

return M
