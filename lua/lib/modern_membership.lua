--- Join, leave and replace the members of a modern group.
local codes = require("lib.codes")
local modern_group = require("lib.modern_group")
local modern_reconcile = require("lib.modern_reconcile")
local deadlines = require("lib.deadlines")

local M = {}

--- The epoch in the heartbeat of a static member that leaves temporarily, and then in its row.
M.LEAVE_STATIC = -2

-- Return a lib.codes value for the member's instance id; the row of the static member that the
-- joining member replaces, with its member id.
local function check_instance(g, id, m, epoch, instance)
  local other = instance ~= "" and redis.call("HGET", g.instances, instance)
  local replaced
  if other and other ~= id then
    if epoch ~= 0 then
      return codes.FENCED_INSTANCE_ID
    end
    replaced = modern_group.get_member(g, other)
    if replaced.epoch ~= M.LEAVE_STATIC then
      return codes.UNRELEASED_INSTANCE_ID
    end
    replaced.id = other
  end
  if epoch ~= 0 and (not m or m.instance ~= instance and instance ~= "") then
    return codes.UNKNOWN_MEMBER_ID
  end
  return codes.NONE, replaced
end

--- Check the heartbeat of a consumer or streams group's member, whose row is `m`, nil for none.
--- `owned`: the partitions that it reports, or nil. Return a lib.codes value, and the row of the
--- static member that it replaces, if any.
function M.check(g, id, m, epoch, instance, owned, max_size)
  local is_empty = not g.type or g.type == "classic" and g.state == modern_group.EMPTY
  if g.type ~= g.wanted_type and (epoch ~= 0 or not is_empty) then
    return codes.GROUP_ID_NOT_FOUND
  end
  local verdict, replaced = check_instance(g, id, m, epoch, instance)
  if verdict ~= codes.NONE then
    return verdict
  end
  local is_repeated = m and epoch > 0 and epoch ~= m.epoch
  if is_repeated and not modern_reconcile.is_previous(m, epoch, owned) then
    return codes.FENCED_MEMBER_EPOCH
  end
  if not m and not replaced and g.size >= max_size then
    return codes.GROUP_MAX_SIZE_REACHED
  end
  return codes.NONE, replaced
end

--- Process the heartbeat of a member that leaves; if `is_static`, it leaves temporarily. Return the
--- reply's wait_ms and rebalances.
function M.leave(g, id, m, is_static, now_ms)
  if is_static then
    if m.converged and m.epoch == g.assignment_epoch then
      g.converged = g.converged - 1
    end
    m.epoch, m.converged = M.LEAVE_STATIC, false
    modern_group.put_member(g, id, m, now_ms)
  else
    modern_group.remove_member(g, id, m)
    modern_group.bump_epoch(g, now_ms)
  end
  modern_group.save(g, now_ms)
  return deadlines.wait_ms(g.deadlines, now_ms), g.rebalances
end

--- Delete the row of a static member that the member replaces, and move its target assignment.
function M.replace(g, id, replaced)
  local target = redis.call("HGET", g.targets, replaced.id)
  redis.call("HDEL", g.members, replaced.id)
  redis.call("HDEL", g.targets, replaced.id)
  redis.call("ZREM", g.deadlines, "m:" .. replaced.id)
  if target then
    redis.call("HSET", g.targets, id, target)
  end
end

return M
