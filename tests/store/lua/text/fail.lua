--- text.fail  version 1  writes
--- Nothing has changed, for it fails.
---
--- KEYS     list   list  never one when this is called
--- RETURNS  error  int   never
--- COST     O(1), at most 1 calls
return { redis.call("HGET", KEYS[1], "x") }
