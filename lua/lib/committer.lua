--- Whether a member of a group of the newer protocol may commit.
local codes = require("lib.codes")
local consumers = require("lib.consumers")

local M = {}

--- A lib.codes value for the rows args[from..], five each: stream key, offset, leader epoch, topic id,
--- metadata. Without rows it is asked what is committed. An epoch that has passed is good for
--- partitions that the member has held since then (KIP-1251): the commit was on its way.
function M.verdict(store, holders, id, epoch, args, from)
  local text = redis.call("HGET", store, id)
  if not text then
    return codes.UNKNOWN_MEMBER_ID
  end
  local current = consumers.glance(text)
  if epoch > current or epoch < 0 or (epoch < current and #args < from) then
    return codes.STALE_MEMBER_EPOCH
  end
  for i = from, epoch < current and #args or 0, 5 do
    local partition = args[i + 3] .. string.match(args[i], ":%d+$")
    if not consumers.has_held(holders, id, partition, epoch) then
      return codes.STALE_MEMBER_EPOCH
    end
  end
  return codes.NONE
end

return M
