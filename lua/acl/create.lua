--- acl.create  version 1  writes
--- Add ACL rules.
---
--- KEYS     acls     hash   rule -> empty, and `:version`
--- ARGV     rule...  bytes  a rule, which no script parses
--- RETURNS  version  int    the version of the rules after the call
---          created  int    rules that did not exist
--- COST     O(rules), at most 4 calls + 1 per rule
--- NOTES    A rule that exists already is no error. The version changes only with the rules.
local table_version = require("lib.table_version")

local acls = KEYS[1]

-- Write.
local created = 0
for i = 1, #ARGV do
  created = created + redis.call("HSET", acls, ARGV[i], "")
end
if created == 0 then
  return { tonumber(redis.call("HGET", acls, ":version") or 0), 0 }
end
return { table_version.raise(acls), created }
