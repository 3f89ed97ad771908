--- user.alter  version 2  writes
--- Set or delete SCRAM credentials of a user.
---
--- KEYS     users          hash   `<mechanism>:<user>` -> credential, and `:version`
--- ARGV     user           text   the user's name
---          condition      text   `absent`: the user has none of these credentials; `present`: the
---                                user has at least one of them; empty: no condition
---          mechanism...   text   a SCRAM mechanism
---          credential...  bytes  its credential, which no script parses; empty deletes it
---          shape...       text   iterations, salt length and alphabet, for decoys
--- RETURNS  error          int    a lib.codes value
---          version        int    the new version of the users table, -1 on an error
--- REFUSES  RESOURCE_NOT_FOUND DUPLICATE_RESOURCE
--- FULL     always: credentials of one user are replaced
--- COST     O(mechanisms), at most 4 calls + 5 per mechanism
--- NOTES    `:shape:<mechanism>` has the shapes of all credentials. A broker gives each unknown
---          user a decoy of one of them, so that a client cannot distinguish them.
local codes = require("lib.codes")
local table_version = require("lib.table_version")

local users = KEYS[1]
local user, condition = ARGV[1], ARGV[2]
local FIRST, ROW = 3, 3
-- Max length of the shapes, about ten of them: above it those of older credentials are forgotten.
local MAX_SHAPES = 200

-- Check.
local known = 0
for i = FIRST, #ARGV, ROW do
  known = known + redis.call("HEXISTS", users, ARGV[i] .. ":" .. user)
end
if condition == "present" and known == 0 then
  return { codes.RESOURCE_NOT_FOUND, -1 }
end
if condition == "absent" and known > 0 then
  return { codes.DUPLICATE_RESOURCE, -1 }
end

-- Write.
for i = FIRST, #ARGV, ROW do
  redis.call("HDEL", users, ARGV[i] .. ":" .. user)
end
for i = FIRST, #ARGV, ROW do
  if ARGV[i + 1] ~= "" then
    redis.call("HSET", users, ARGV[i] .. ":" .. user, ARGV[i + 1])
    local field, shape = ":shape:" .. ARGV[i], ARGV[i + 2]
    local shapes = redis.call("HGET", users, field)
    if not shapes or #shapes > MAX_SHAPES then
      redis.call("HSET", users, field, shape)
    elseif not string.find("," .. shapes .. ",", "," .. shape .. ",", 1, true) then
      redis.call("HSET", users, field, shapes .. "," .. shape)
    end
  end
end
return { codes.NONE, table_version.raise(users) }
