--- The stored state of a classic group: its hash, its members' rows.
--- lib.classic_membership adds and removes members, lib.classic_rebalance changes the state.
---
--- KEYS of every script on a classic group begin: group, members, clients, protocols, instances,
--- assignments, deadlines. A script loads, checks, changes, and saves once at the end.
---
--- Empty -> PreparingRebalance -> CompletingRebalance -> Stable, and back to PreparingRebalance
--- when the members change; without members to Empty. The generation grows when the join phase of
--- a rebalance completes, and only then.
---
--- deadlines: member id -> its session expires; ":join" -> the join phase ends; ":hold" -> the join
--- phase no longer waits for pending members; ":sync" -> members without SyncGroup are removed;
--- ":offsets" -> committed offsets are checked for expired ones.
--- A member whose JoinGroup or SyncGroup waits has no deadline: it sends no heartbeats meanwhile.
local codes = require("lib.codes")
local classic_member = require("lib.classic_member")
local deadlines = require("lib.deadlines")
local num = require("lib.num")

local M = {}

M.EMPTY, M.PREPARING = "Empty", "PreparingRebalance"
M.COMPLETING, M.STABLE = "CompletingRebalance", "Stable"

-- bytes: those of all members' protocols. The first WORDS fields are text, the others numbers.
local WORDS = 5
-- awaiting: members whose JoinGroup waits. pending: ids handed out by MEMBER_ID_REQUIRED. unsynced:
-- members without SyncGroup in this generation. since: moment of the last change of state.
-- Of the first join phase: initial, 1 while it lasts; extended, 1 once a member joined since its
-- deadline was set; delay_ms, the configured delay; step_ms, the current one; left_ms, what
-- remains.
local NAMES = {
  "type", "state", "protocol_type", "protocol", "leader",
  "generation", "size", "awaiting", "pending", "unsynced", "initial", "extended", "delay_ms",
  "step_ms", "left_ms", "since", "bytes",
}

--- Load the group; `exists` is false for one that was never written.
function M.load(keys)
  local g = {
    group = keys[1], members = keys[2], clients = keys[3], protocols = keys[4],
    instances = keys[5], assignments = keys[6], deadlines = keys[7], rebalances = 0,
  }
  local row = redis.call("HMGET", g.group, unpack(NAMES))
  for i, name in ipairs(NAMES) do
    g[name] = i <= WORDS and (row[i] or "") or tonumber(row[i] or 0)
  end
  g.exists = g.type ~= ""
  if not g.exists then
    g.type, g.state = "classic", M.EMPTY
  end
  return g
end

--- Store the group, and notify waiting requests if `notify` is set.
function M.save(g)
  local fields = {}
  for i, name in ipairs(NAMES) do
    fields[2 * i - 1] = name
    fields[2 * i] = i <= WORDS and g[name] or num.text(g[name])
  end
  redis.call("HSET", g.group, unpack(fields))
  if g.notify then
    redis.call("PUBLISH", g.group, num.text(g.generation))
  end
end

--- Renew the member's session.
function M.renew_session(g, id, row, now_ms)
  deadlines.set(g.deadlines, id, now_ms + row.session)
end

--- Return the member's row, nil for an unknown and for a pending member.
function M.get_member(g, id)
  return classic_member.parse(redis.call("HGET", g.members, id))
end

--- Return whether the id was handed out and has not joined.
function M.is_pending(g, id)
  return redis.call("HGET", g.members, id) == classic_member.PENDING
end

--- Store the member's row.
function M.put_member(g, id, row)
  redis.call("HSET", g.members, id, classic_member.format(row))
end

--- Return every member, without pending ones, as a list of {id, row} ordered by id.
function M.list_members(g)
  local flat, list = redis.call("HGETALL", g.members), {}
  for i = 1, #flat, 2 do
    local row = classic_member.parse(flat[i + 1])
    if row then
      list[#list + 1] = { flat[i], row }
    end
  end
  table.sort(list, function(a, b)
    return a[1] < b[1]
  end)
  return list
end

--- Return NONE if the id is a member's and, if an instance is given, that instance's.
--- `instance` is empty for a dynamic member.
function M.check_member(g, id, instance)
  if instance ~= "" then
    local known = redis.call("HGET", g.instances, instance)
    if not known then
      return codes.UNKNOWN_MEMBER_ID
    end
    if known ~= id then
      return codes.FENCED_INSTANCE_ID
    end
  end
  if not M.get_member(g, id) then
    return codes.UNKNOWN_MEMBER_ID
  end
  return codes.NONE
end

--- Return the members of a JoinGroup response: for the leader flat {id, instance, metadata, ...},
--- for other members nothing. A dynamic member's instance is empty.
function M.list_for_leader(g, id)
  local list = {}
  if g.leader == id then
    for _, pair in ipairs(M.list_members(g)) do
      local client = classic_member.parse_client(redis.call("HGET", g.clients, pair[1]))
      local protocols = redis.call("HGET", g.protocols, pair[1])
      list[#list + 1] = pair[1]
      list[#list + 1] = client.instance or ""
      list[#list + 1] = classic_member.metadata(protocols, g.protocol)
    end
  end
  return list
end

return M
