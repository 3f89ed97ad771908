--- The stored rows of one member of a classic group.
---
--- members    member id -> "session_ms rebalance_ms flags"; flags are letters: a: its JoinGroup
---            waits; n: new, no JoinGroup of it was answered; s: it has sent SyncGroup in this
---            generation; "-": none. "pending": the id was handed out (MEMBER_ID_REQUIRED).
--- clients    member id -> packed {client id, client host, instance id if static}
--- protocols  member id -> packed {name, metadata, name, metadata, ...}, in the member's order
local fields = require("lib.fields")
local num = require("lib.num")
local pack = require("lib.pack")

local M = {}

M.PENDING = "pending"

--- Parse a row. Return nil for no row, a pending member, and a member of another group type.
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

--- Format a row as it is stored.
function M.format(row)
  local flags = (row.awaiting and "a" or "") .. (row.new and "n" or "")
  flags = flags .. (row.synced and "s" or "")
  flags = flags == "" and "-" or flags
  return num.text(row.session) .. " " .. num.text(row.rebalance) .. " " .. flags
end

--- Parse {client_id, client_host, instance}; instance is nil for a dynamic member.
function M.parse_client(text)
  local list = pack.unpack(text)
  return { client_id = list[1], client_host = list[2], instance = list[3] }
end

--- Format a joining member's client row. `instance` is empty for a dynamic member.
function M.format_client(client_id, client_host, instance)
  if instance == "" then
    return pack.pack({ client_id, client_host })
  end
  return pack.pack({ client_id, client_host, instance })
end

--- Return the names of a member's protocols, in its order.
function M.names(protocols)
  local list, names = pack.unpack(protocols), {}
  for i = 1, #list, 2 do
    names[#names + 1] = list[i]
  end
  return names
end

--- Return the member's metadata for a protocol, empty if it does not support it.
function M.metadata(protocols, name)
  return fields.get(pack.unpack(protocols), name) or ""
end

return M
