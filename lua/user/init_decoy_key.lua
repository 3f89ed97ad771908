--- user.init_decoy_key  version 1  writes
--- Return the cluster's key for decoy credentials, after storing the given one if there is none.
---
--- KEYS     users      hash   `<mechanism>:<user>` -> credential
--- ARGV     decoy_key  bytes  the key to store if there is none, random bytes
--- RETURNS  error      int    a lib.codes value
---          decoy_key  bytes  the cluster's key
--- COST     O(1), at most 2 calls
--- NOTES    Brokers derive the salt of an unknown user from the key and the name. All brokers use
---          one key, so that the salt is the same at each attempt.
local codes = require("lib.codes")
local init_field = require("lib.init_field")

local users = KEYS[1]
local decoy_key = ARGV[1]

-- Write.
return { codes.NONE, init_field.once(users, ":decoy_key", decoy_key) }
