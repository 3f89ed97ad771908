--- list.add  version 1  writes
--- Append a value to a list.
---
--- KEYS     list    list   values in the order of the calls
--- ARGV     value   bytes  the value
--- RETURNS  error   int    always 0
---          length  int    how many there are now
--- COST     O(1), at most 1 calls
return { 0, redis.call("RPUSH", KEYS[1], ARGV[1]) }
