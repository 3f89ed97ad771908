--- acl.delete  version 1  writes
--- Delete ACL rules.
---
--- KEYS     acls     hash   rule -> empty, and `:version`
--- ARGV     rule...  bytes  a rule exactly as stored
--- RETURNS  version  int    the version of the rules after the call
---          deleted  ints   per rule 1 if it existed, else 0
--- FULL     always: rules are removed
--- COST     O(rules), at most 4 calls + 1 per rule
--- NOTES    The version changes only with the rules.
local table_version = require("lib.table_version")

local acls = KEYS[1]

-- Write.
local deleted, changed = {}, false
for i = 1, #ARGV do
  deleted[i] = redis.call("HDEL", acls, ARGV[i])
  changed = changed or deleted[i] == 1
end
if not changed then
  return { tonumber(redis.call("HGET", acls, ":version") or 0), deleted }
end
return { table_version.raise(acls), deleted }
