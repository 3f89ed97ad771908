--- broker.raise_epoch  version 1  writes
--- Return the leader epoch of all partitions, raised if a server of Redis may have lost records.
---
--- KEYS     cluster    hash   cluster id, leases, counters
--- ARGV     begun      int    the epoch that the caller has begun in every log, -1 for none
---          is_clean   int=0  1: servers that are new have lost nothing
---          witness    text=  the calling process, which may know of records that were lost; empty
---                            for one that is no broker
---          leaves     int=0  1: it ends, and is awaited no more
---          by_time    int=0  1: a new epoch is at least the seconds since 2020, and so none that
---                            clients have seen at another history that Redis does not know
---          witnesses  bytes=  the processes that the caller knew of, as this script returned them
---          runs...    text   run ids of the servers in use, and of those at which the caller began
---                            that epoch; of a promoted replica with its replication id
--- RETURNS  error      int    a lib.codes value
---          epoch      int    the leader epoch
---          due        int    1: no process has begun it in every log; 2: no broker has, which
---                            also aborts transactions
---          wait_ms    int    ms for which no caller may append, or end a transaction, at a server
---                            that is new: until then other processes can report; 0 once all have
---          witnesses  bytes  `process epoch` pairs: the last epoch for which it has reported
--- FULL     always: a row of at most 200 run ids, and one of at most 1,000 processes
--- COST     O(runs + witnesses), at most 4 calls
--- NOTES    A run id that was not seen before is a restart, a failover or another server: it may
---          lack records. So may a Redis whose epoch is lower than the caller's. A process
---          reports for an epoch with `begun`: it has begun it in every log, with the ends that it
---          knew. One that has begun none knows no ends. A program that is no broker (library,
---          Spark) begins it in every log, and is never awaited. A process that has not reported
---          within WAIT_MS is no longer awaited, at later epochs neither, until it calls again.
local clock = require("lib.clock")
local codes = require("lib.codes")
local num = require("lib.num")

local cluster = KEYS[1]
local begun, is_clean, witness = tonumber(ARGV[1]), ARGV[2] == "1", ARGV[3]
local leaves, by_time, remembered = ARGV[4] == "1", ARGV[5] == "1", ARGV[6]
local MOST_RUNS, MOST_WITNESSES, WAIT_MS, RUNS = 200, 1000, 5000, 7
local FROM_S, MOST_S = 1577836800, 2000000000

local row = redis.call(
  "HMGET", cluster, "epoch", "epoch_begun", "servers", "witnesses", "witnesses_until",
  "logs_begun"
)
local stored, servers, known = tonumber(row[1] or "-1"), {}, {}
for run in string.gmatch(row[3] or "", "%S+") do
  servers[#servers + 1], known[run] = run, true
end
local seen = #servers
for i = RUNS, #ARGV do
  if not known[ARGV[i]] then
    servers[#servers + 1], known[ARGV[i]] = ARGV[i], true
  end
end
local now_ms, epoch = clock.now_ms(), stored
if stored < 0 or stored < begun or #servers > seen and not is_clean then
  local since_s = math.min(math.max(math.floor(now_ms / 1000) - FROM_S, 0), MOST_S)
  epoch = math.max(stored + 1, begun + 1, by_time and since_s or 0)
end
local had_begun, logs_had_begun = tonumber(row[2] or "0"), tonumber(row[6] or "0")
local all_begun, logs_begun = had_begun, math.max(begun, logs_had_begun)
if witness ~= "" then
  all_begun = math.max(begun, had_begun)
end
local due = all_begun < epoch and (logs_begun < epoch and 1 or 2) or 0

local until_ms = tonumber(row[5] or "0")
local ends_ms = until_ms
if ends_ms > now_ms + WAIT_MS then
  ends_ms = now_ms + WAIT_MS  -- the clock was set back
end
local names, reported = {}, {}
local function add(name, number)
  if not reported[name] then
    names[#names + 1], reported[name] = name, number
  end
end
for name, number in string.gmatch(row[4] or "", "(%S+) (%-?%d+)") do
  if tonumber(number) >= stored or ends_ms > now_ms then
    add(name, tonumber(number))
  end
end
if epoch > stored and math.max(stored, begun) >= 0 then
  ends_ms = now_ms + WAIT_MS
end
if ends_ms > now_ms and begun < epoch then
  for name in string.gmatch(remembered, "(%S+) %-?%d+") do
    add(name, -1)
  end
end
if witness ~= "" then
  add(witness, begun)
  reported[witness] = begun < 0 and due == 0 and epoch or math.min(begun, epoch)
end
local rows, wait_ms = {}, 0
for i = math.max(1, #names - MOST_WITNESSES + 1), #names do
  local name = names[i]
  if not (leaves and name == witness) then
    rows[#rows + 1] = name .. " " .. num.text(reported[name])
    if reported[name] < epoch then
      wait_ms = math.max(ends_ms - now_ms, 0)
    end
  end
end
local witnesses = table.concat(rows, " ")

-- Write. Every broker calls this with each heartbeat: hardly ever there is something to write.
if epoch ~= stored or all_begun ~= had_begun or #servers > seen or witnesses ~= row[4]
  or ends_ms ~= until_ms or logs_begun ~= logs_had_begun then
  redis.call(
    "HSET", cluster, "epoch", num.text(epoch), "epoch_begun", num.text(all_begun),
    "logs_begun", num.text(logs_begun), "servers",
    table.concat(servers, " ", math.max(1, #servers - MOST_RUNS + 1)), "witnesses", witnesses,
    "witnesses_until", num.text(ends_ms)
  )
end
return { codes.NONE, epoch, due, wait_ms, witnesses }
