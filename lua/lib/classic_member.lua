--- One member of a classic group, as it is stored.
---
--- members    member id -> "session_ms rebalance_ms flags"; flags are letters: a waits for its
---            JoinGroup to be answered, n has never been answered, s has called SyncGroup in this
---            generation; "-" none. "pending": the id was handed out (MEMBER_ID_REQUIRED), no more.
--- clients   member id -> packed {client id, client host, instance id or nothing}
--- protocols  member id -> packed {name, metadata, name, metadata, ...}, the member's order
local num = require("lib.num")
local pack = require("lib.pack")

local M = {}

M.PENDING = "pending"

--- A stored row as a table; nil for nobody, for a pending member and for a
--- member of another kind of group.
function M.parse(text)
  if not text or text == M.PENDING then
    return nil
  end
  local session, rebalance, flags = string.match(text, "^(%d+) (%d+) (%S+)$")
  if not session then
    return nil
  end
  return {
    session = tonumber(session),
    rebalance = tonumber(rebalance),
    awaiting = string.find(flags, "a", 1, true) ~= nil,
    new = string.find(flags, "n", 1, true) ~= nil,
    synced = string.find(flags, "s", 1, true) ~= nil,
  }
end

--- The row as it is stored.
function M.text(row)
  local flags = (row.awaiting and "a" or "") .. (row.new and "n" or "") .. (row.synced and "s" or "")
  return num.text(row.session) .. " " .. num.text(row.rebalance) .. " " .. (flags == "" and "-" or flags)
end

--- The profile as a table {client_id, client_host, instance}; instance is nil for a dynamic member.
function M.profile(text)
  local list = pack.unpack(text)
  return { client_id = list[1], client_host = list[2], instance = list[3] }
end

--- The names of a member's protocols, in its order.
function M.names(protocols)
  local list, names = pack.unpack(protocols), {}
  for i = 1, #list, 2 do
    names[#names + 1] = list[i]
  end
  return names
end

--- The metadata a member gave for a protocol, empty when it gave none.
function M.metadata(protocols, name)
  local list = pack.unpack(protocols)
  for i = 1, #list, 2 do
    if list[i] == name then
      return list[i + 1]
    end
  end
  return ""
end

return M
