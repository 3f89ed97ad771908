--- Groups whose broker does the assigning (KIP-848): what is stored of them, and of their members.
---
--- group      "generation" is the group's epoch, it grows with the members and their topics;
---            "assignment_epoch" the epoch the targets are of; "converged" how many members have their target
---            at that epoch; "subscription" what members subscribe to, "topics" what there is of it, as the
---            topics table of "version" said; "assignment_size" members and partitions the last time; "epoch_at_ms"
---            and "assigned_at_ms" when the epoch grew and when targets were made, ms
--- consumer_members  member id -> six numbers, then packed words
--- target_assignment    member id -> the partitions it should have
--- partition_owners    partition -> the epoch it was given at, a space, and the member that has it or has not
---            yet given it up
--- deadlines  "m:" and a member id -> moment it is dead, or out for not giving something up
---
--- A partition is "<topic id>:<number>"; several are stored as "<topic id>:0,1,2;<topic id>:5".
local codes = require("lib.codes")
local num = require("lib.num")
local pack = require("lib.pack")

local M = {}

M.EMPTY, M.ASSIGNING, M.RECONCILING, M.STABLE = "Empty", "Assigning", "Reconciling", "Stable"

-- When a group that has lost its last member is first looked at for old commits.
local LOOK_MS = 60000
local CHUNK = 1000

local NUMBERS = { "epoch", "previous", "converged", "session", "rebalance", "revoke_by" }
local WORDS = { "instance", "rack", "client_id", "client_host", "assignor", "regex" }
local HEAD = "^(%-?%d+) (%d+) ([01]) (%d+) (%d+) (%d+) "
local COUNTS = { "generation", "assignment_epoch", "converged", "size", "assignment_size", "epoch_at_ms", "assigned_at_ms" }

--- Partitions as one text.
function M.spell(list)
  local by_topic, order = {}, {}
  for _, partition in ipairs(list) do
    local topic, number = string.match(partition, "^(%x+):(%d+)$")
    if topic then
      if not by_topic[topic] then
        by_topic[topic] = {}
        order[#order + 1] = topic
      end
      local numbers = by_topic[topic]
      numbers[#numbers + 1] = number
    end
  end
  for i, topic in ipairs(order) do
    order[i] = topic .. ":" .. table.concat(by_topic[topic], ",")
  end
  return table.concat(order, ";")
end

--- The partitions of such a text.
function M.read(text)
  local list = {}
  for topic, numbers in string.gmatch(text, "(%x+):([%d,]+)") do
    for number in string.gmatch(numbers, "%d+") do
      list[#list + 1] = topic .. ":" .. number
    end
  end
  return list
end

--- The partitions of two such texts as one text.
function M.join(one, other)
  if other == "" then
    return one
  end
  local list = M.read(one)
  for _, partition in ipairs(M.read(other)) do
    list[#list + 1] = partition
  end
  return M.spell(list)
end

--- A list as a set.
function M.set(list)
  local found = {}
  for _, item in ipairs(list) do
    found[item] = true
  end
  return found
end

--- The items of `list` that are (or are not) in `set`.
function M.pick(list, set, wanted)
  local found = {}
  for _, item in ipairs(list) do
    if (set[item] == true) == wanted then
      found[#found + 1] = item
    end
  end
  return found
end

--- The group; KEYS are group, consumers, targets, holders, instances, deadlines.
function M.load(keys)
  local g = {
    group = keys[1], consumer_members = keys[2], target_assignment = keys[3], partition_owners = keys[4],
    instances = keys[5], deadlines = keys[6], began = 0,
  }
  local row = redis.call(
    "HMGET", g.group, "type", "state", "version", "assignor", "subscription", unpack(COUNTS)
  )
  g.type, g.state, g.version, g.assignor = row[1], row[2] or M.EMPTY, row[3] or "", row[4] or "uniform"
  g.subscription = row[5] or ""
  for i, name in ipairs(COUNTS) do
    g[name] = tonumber(row[5 + i] or 0)
  end
  if g.type ~= "consumer" then
    -- A classic group without members becomes one: its epochs go on where its generations were.
    g.size, g.converged, g.assignment_epoch, g.version, g.subscription = 0, 0, 0, "", ""
  end
  return g
end

--- The group's epoch has grown: targets have to be made anew.
function M.move(g, now_ms)
  g.generation, g.epoch_at_ms, g.began = g.generation + 1, now_ms, 1
end

--- What was changed in `g` is stored. Without members it is Empty, and old commits are looked for.
function M.save(g, now_ms)
  if g.size == 0 then
    if g.state ~= M.EMPTY or g.type ~= "consumer" then
      redis.call("HSET", g.group, "since", num.text(now_ms))
    end
    g.state, g.converged = M.EMPTY, 0
    redis.call("UNLINK", g.consumer_members, g.target_assignment, g.partition_owners, g.instances)
    redis.call("ZADD", g.deadlines, "NX", num.text(now_ms + LOOK_MS), ":offsets")
  else
    if g.state == M.EMPTY then
      redis.call("ZREM", g.deadlines, ":offsets")
    end
    g.state = M.STABLE
    if g.assignment_epoch < g.generation then
      g.state = M.ASSIGNING
    elseif g.converged < g.size then
      g.state = M.RECONCILING
    end
  end
  local fields = {
    "type", "consumer", "protocol_type", "consumer", "state", g.state, "version", g.version,
    "assignor", g.assignor, "subscription", g.subscription,
  }
  for _, name in ipairs(COUNTS) do
    fields[#fields + 1] = name
    fields[#fields + 1] = num.text(g[name])
  end
  redis.call("HSET", g.group, unpack(fields))
end

--- A stored row as a table, nil for nobody. Its partitions stay text until they are asked for.
function M.parse(text)
  if not text then
    return nil
  end
  local m, at = {}, 1
  local _, last, epoch, previous, converged, session, rebalance, revoke_by = string.find(text, HEAD)
  m.epoch, m.previous, m.converged = tonumber(epoch), tonumber(previous), converged == "1"
  m.session, m.rebalance, m.revoke_by = tonumber(session), tonumber(rebalance), tonumber(revoke_by)
  local list = pack.unpack(string.sub(text, last + 1))
  for _, name in ipairs(WORDS) do
    m[name], at = list[at], at + 1
  end
  m.names, m.assigned, m.revoking = list[at], list[at + 1], list[at + 2]
  return m
end

--- The member's row, nil for a stranger.
function M.member(g, id)
  return M.parse(redis.call("HGET", g.consumer_members, id))
end

--- Epoch and whether the member is converged, and nothing more of it: what a quiet heartbeat needs.
function M.glance(text)
  local epoch, converged = string.match(text, "^(%-?%d+) %d+ ([01]) ")
  return tonumber(epoch), converged == "1"
end

--- The member is stored, and dead unless it is heard of in time.
function M.put(g, id, m, now_ms)
  local list, words = {}, {}
  for i, name in ipairs(NUMBERS) do
    list[i] = name == "converged" and (m.converged and "1" or "0") or num.text(m[name])
  end
  for i, name in ipairs(WORDS) do
    words[i] = m[name]
  end
  for _, name in ipairs({ "names", "assigned", "revoking" }) do
    words[#words + 1] = m[name]
  end
  redis.call("HSET", g.consumer_members, id, table.concat(list, " ") .. " " .. pack.pack(words))
  M.hear(g, id, m, now_ms)
end

--- The member was heard of.
function M.hear(g, id, m, now_ms)
  local moment = now_ms + m.session
  if m.revoking ~= "" then
    moment = math.min(moment, m.revoke_by)
  end
  redis.call("ZADD", g.deadlines, num.text(moment), "m:" .. id)
end

--- Nobody holds these partitions any more.
function M.release(g, list)
  for from = 1, #list, CHUNK do
    redis.call("HDEL", g.partition_owners, unpack(list, from, math.min(from + CHUNK - 1, #list)))
  end
end

--- The member holds these partitions, since the epoch of the targets.
function M.hold(g, id, list)
  local flat, holder = {}, num.text(g.assignment_epoch) .. " " .. id
  for _, partition in ipairs(list) do
    flat[#flat + 1], flat[#flat + 2] = partition, holder
  end
  for from = 1, #flat, 2 * CHUNK do
    redis.call("HSET", g.partition_owners, unpack(flat, from, math.min(from + 2 * CHUNK - 1, #flat)))
  end
end

--- Whether the member has held the partition since that epoch or longer.
function M.has_held(partition_owners, id, partition, epoch)
  local since, holder = string.match(redis.call("HGET", partition_owners, partition) or "", "^(%d+) (.*)$")
  return holder == id and tonumber(since) <= epoch
end

--- Those of the partitions that nobody else holds.
function M.free(g, id, list)
  local found = {}
  for from = 1, #list, CHUNK do
    local last = math.min(from + CHUNK - 1, #list)
    local row = redis.call("HMGET", g.partition_owners, unpack(list, from, last))
    for i = from, last do
      local holder = row[i - from + 1]
      if not holder or string.match(holder, "^%d+ (.*)$") == id then
        found[#found + 1] = list[i]
      end
    end
  end
  return found
end

--- Nothing is left of the member. The caller moves the epoch.
function M.remove(g, id, m)
  M.release(g, M.read(m.assigned))
  M.release(g, M.read(m.revoking))
  redis.call("HDEL", g.consumer_members, id)
  redis.call("HDEL", g.target_assignment, id)
  redis.call("ZREM", g.deadlines, "m:" .. id)
  if m.instance ~= "" then
    redis.call("HDEL", g.instances, m.instance)
  end
  g.size = g.size - 1
  if m.converged and m.epoch == g.assignment_epoch then
    g.converged = g.converged - 1
  end
end

--- The member is sent away: by its id, by its instance, or by both. Returns a lib.codes value.
function M.dismiss(g, id, instance)
  if instance ~= "" then
    local known = redis.call("HGET", g.instances, instance)
    if known and id ~= "" and id ~= known then
      return codes.FENCED_INSTANCE_ID
    end
    id = known or ""
  end
  local m = M.member(g, id)
  if not m then
    return codes.UNKNOWN_MEMBER_ID
  end
  M.remove(g, id, m)
  return codes.NONE
end

--- Milliseconds until somebody has to look at the group, -1 for never.
function M.wait_ms(g, now_ms)
  local first = redis.call("ZRANGE", g.deadlines, 0, 0, "WITHSCORES")
  return first[1] and math.max(0, tonumber(first[2]) - now_ms) or -1
end

--- Every member has its time again: no broker can have been there to hear it.
function M.forgive(g, now_ms)
  local flat = redis.call("HGETALL", g.consumer_members)
  for i = 1, #flat, 2 do
    local m = M.parse(flat[i + 1])
    if m.revoking ~= "" then
      m.revoke_by = now_ms + m.rebalance
      M.put(g, flat[i], m, now_ms)
    else
      M.hear(g, flat[i], m, now_ms)
    end
  end
end

--- The deadline of that name has passed: the member is out.
function M.expire(g, name, now_ms)
  redis.call("ZREM", g.deadlines, name)
  local id = string.sub(name, 3)
  local m = M.member(g, id)
  if m then
    M.remove(g, id, m)
    M.move(g, now_ms)
  end
end

--- Whether a member of a group of the newer protocol may commit: a lib.codes value for the rows args[from..], five each: stream key, offset, leader epoch, topic id,
--- metadata. Without rows it is asked what is committed. An epoch that has passed is good for
--- partitions that the member has held since then (KIP-1251): the commit was on its way.
function M.check_commit(consumer_members, partition_owners, id, epoch, args, from)
  local text = redis.call("HGET", consumer_members, id)
  if not text then
    return codes.UNKNOWN_MEMBER_ID
  end
  local current = M.glance(text)
  if epoch > current or epoch < 0 or (epoch < current and #args < from) then
    return codes.STALE_MEMBER_EPOCH
  end
  for i = from, epoch < current and #args or 0, 5 do
    local partition = args[i + 3] .. string.match(args[i], ":%d+$")
    if not M.has_held(partition_owners, id, partition, epoch) then
      return codes.STALE_MEMBER_EPOCH
    end
  end
  return codes.NONE
end

return M
