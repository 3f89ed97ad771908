--- The statuses and user endpoints in the response to a streams group's member (KIP-1071).
local modern_member = require("lib.modern_member")
local num = require("lib.num")
local pack = require("lib.pack")

local M = {}

M.STALE_TOPOLOGY, M.SHUTDOWN_APPLICATION, M.ASSIGNMENT_DELAYED = 0, 4, 5

--- List the statuses of a member: code, detail, flat. `delay` says why no assignment is computed
--- yet, nil if it is.
function M.list(g, m, plan, delay)
  local list = {}
  local function add(code, detail)
    list[#list + 1], list[#list + 2] = num.small(code), detail
  end
  if tonumber(m.topology_epoch) < g.topology_epoch then
    add(M.STALE_TOPOLOGY, "The member's topology epoch " .. m.topology_epoch .. " is behind the "
      .. "group's topology epoch " .. num.text(g.topology_epoch) .. ".")
  end
  if delay then
    add(M.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured " .. delay .. ".")
  end
  if plan.status then
    add(plan.status, plan.detail)
  end
  if g.shutdown ~= "" then
    add(M.SHUTDOWN_APPLICATION, "Streams group member " .. g.shutdown .. " encountered a fatal "
      .. "error and requested a shutdown for the entire application.")
  end
  return list
end

-- Return the partitions of the tasks of one kind: topic, numbers, flat and packed.
local function partitions(assigned, kind, inputs, counts)
  local list = {}
  for id, numbers in string.gmatch(assigned, kind .. "(%x+):([%d,]+)") do
    for _, topic in ipairs(inputs[id] or {}) do
      local found = {}
      for number in string.gmatch(numbers, "%d+") do
        if tonumber(number) < (counts[topic] or 0) then
          found[#found + 1] = number
        end
      end
      if #found > 0 then
        list[#list + 1], list[#list + 2] = topic, table.concat(found, ",")
      end
    end
  end
  return pack.pack(list)
end

--- List the user endpoints of all members, flat: endpoint, and partitions of its active and of its
--- standby tasks. `counts`: topic -> partitions.
function M.endpoints(g, subs, counts)
  local rows, ids, inputs, list = redis.call("HGETALL", g.members), {}, {}, {}
  for _, sub in ipairs(subs) do
    inputs[sub.id] = sub.inputs
  end
  for i = 1, #rows, 2 do
    ids[#ids + 1], ids[rows[i]] = rows[i], rows[i + 1]
  end
  table.sort(ids)
  for _, id in ipairs(ids) do
    local m = modern_member.parse(ids[id])
    if m.endpoint ~= "" then
      list[#list + 1] = m.endpoint
      list[#list + 1] = partitions(m.assigned, "a", inputs, counts)
      list[#list + 1] = partitions(m.assigned, "b", inputs, counts)
    end
  end
  return list
end

return M
