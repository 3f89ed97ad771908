--- lib.korvet  version 1
--- Append records, commit offsets or acknowledge records in a script of your own: put this text in
--- front of yours.
---
--- korvet.append(keys, topic_id, records, stamp)
---   Append records to a partition and return the offset of the first. Raise an error, with
---   nothing written by it, if that is refused.
---   keys      the five keys of the partition, declared as KEYS by the caller: korvet:orders:0,
---             then {korvet:orders:0} with :log, :index, :producers, :open_txns; if the topic has
---             dedupe.window.ms, two more: :dedupe, :dedupe_old; with table.enable, these and then
---             :table, :table_newer
---   topic_id  the topic's id, 32 hex digits; "": that of the topic that now has the name
---   records   a list of { value =, key =, headers =, timestamp = }, each may be absent: strings,
---             and timestamp in ms, otherwise the time of Redis. headers: { name = value } in the
---             order of the names, or { { name, value }, ... }; without a value it is null
---   stamp     true: the topic has message.timestamp.type=LogAppendTime
---   A record whose header korvet-dedupe-id the partition knows is left out: its offset is that of
---   the first one. -1 is returned if the records then have no consecutive offsets.
---   A record with the header korvet-expected-offset is refused unless its key's newest record has
---   that offset; -1: unless the key has no value. The topic has table.offsets.enable.
--- korvet.check(keys, topic_id, records, stamp)
---   Raise the error that append would raise, and write nothing: for scripts that append twice.
--- korvet.append_fields(keys, args)
---   The same as append, with strings: topic id, "1" for stamp, and for each record the number of
---   its fields and values, then those: key, value, timestamp, header.NAME, null.header.NAME.
--- korvet.partition_of(key, count)
---   Return the partition that Kafka's clients choose for the key, of `count` partitions.
--- korvet.commit(keys, args)
---   Commit offsets for a member of a consumer group (KIP-848). Raise an error, with nothing
---   written by it, unless the member owns all partitions and began at the committed offsets.
---   keys      three keys of the group, declared as KEYS by the caller: with the braces of
---             {korvet:group:totals:offsets} :consumer_members and :partition_owners, then without
---             braces korvet:group:totals:offsets
---   args      strings: member id, member epoch, and for each partition five: korvet:orders:0, the
---             committed offset at which the member began ("-1": none, "": any), the offset to
---             commit, the topic's id, metadata
--- korvet.check_commit(keys, args)
---   Raise the error that commit would raise, and write nothing.
--- korvet.acknowledge(keys, args)
---   Acknowledge records for a member of a share group (KIP-932). Raise an error, with nothing
---   written by it, unless the member has acquired them.
---   keys      three keys of the partition, declared as KEYS by the caller: {korvet:orders:0} with
---             :log, :share, :share_runs
---   args      strings: ARGV of the script share.acknowledge, which the Python library has
--- korvet.check_acknowledge(keys, args)
---   Raise the error that acknowledge would raise, and write nothing.
---
--- Redis undoes nothing: append or commit first, then write what is yours. Appends are to topics of
--- layout `record` only.
local append = require("lib.append")
local clock = require("lib.clock")
local codes = require("lib.codes")
local num = require("lib.num")

local M = {}

local KEYS_OF = { "", ":log", ":index", ":producers", ":open_txns", ":dedupe", ":dedupe_old",
  ":table", ":table_newer" }
local MAX_HEADERS = 1000
-- What an entry counts in addition to its names and values, as OVERHEAD of korvet.wire does.
local OVERHEAD = 24

local function refuse(text)
  error("korvet: " .. text, 0)
end

-- Refuse keys from..to unless they are the partition's.
local function check_keys(keys, from, to)
  for i = from, to do
    local expected = "{" .. keys[1] .. "}" .. KEYS_OF[i]
    if keys[i] ~= expected then
      refuse("key " .. i .. " of the partition " .. keys[1] .. " is " .. expected)
    end
  end
end

-- Return the keys' log, opened. Refuse keys and topics to which no records can be appended.
local function open(keys, topic_id, stamp)
  local stream = type(keys) == "table" and keys[1]
  if type(stream) ~= "string" then
    refuse("keys are the list of a partition's five keys")
  end
  check_keys(keys, 2, 5)
  local row = redis.call("HMGET", keys[2], "topic_id", "format", "mode", "dedupe", "table")
  if not row[1] then
    refuse("there is no partition " .. stream .. ": create its topic")
  elseif topic_id ~= nil and topic_id ~= "" and topic_id ~= row[1] then
    refuse(stream .. " belongs to a topic with another id: it was deleted and created again")
  elseif row[2] ~= "record" or row[3] == "bytes" then
    refuse(stream .. " has not the layout record: scripts cannot append records to it")
  end
  check_keys(keys, 6, row[5] and 9 or row[4] and 7 or 5)
  return append.open(keys, 1, row[1], stamp, clock.now_ms())
end

-- Refuse a value that is no string: Redis and Lua write numbers in more than one way.
local function text_of(value, what, n)
  if type(value) ~= "string" then
    refuse(what .. " of record " .. n .. " is a " .. type(value) .. ", not a string")
  end
  return value
end

-- Return a timestamp as digits.
local function time_of(value, n)
  local ms = tonumber(value)
  local digits = type(value) == "string" and value or ms and num.text(ms)
  if not ms or ms < 0 or ms >= 2 ^ 53 or ms % 1 ~= 0 or not string.find(digits, "^%d+$") then
    refuse("timestamp of record " .. n .. " is not a number of ms")
  end
  return digits
end

-- Return headers as a list of pairs.
local function pairs_of(headers, n)
  if type(headers) ~= "table" then
    refuse("headers of record " .. n .. " are a " .. type(headers) .. ", not a table")
  end
  if #headers > 0 then
    return headers
  end
  local found = {}
  for name, value in pairs(headers) do
    found[#found + 1] = { text_of(name, "a header's name", n), value }
  end
  table.sort(found, function(a, b) return a[1] < b[1] end)
  return found
end

-- Return the fields and values of a record.
local function fields_of(record, n)
  if type(record) ~= "table" then
    refuse("record " .. n .. " is a " .. type(record) .. ", not a table")
  end
  for name in pairs(record) do
    if name ~= "key" and name ~= "value" and name ~= "timestamp" and name ~= "headers" then
      refuse("record " .. n .. " has the unknown field " .. name)
    end
  end
  local fields = {}
  local function put(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = text_of(value, name, n)
  end
  if record.key ~= nil then
    put("key", record.key)
  end
  if record.value ~= nil then
    put("value", record.value)
  end
  if record.timestamp ~= nil then
    put("timestamp", time_of(record.timestamp, n))
  end
  for _, header in ipairs(pairs_of(record.headers or {}, n)) do
    local name = text_of(type(header) == "table" and header[1] or nil, "a header's name", n)
    if header[2] == nil then
      put("null.header." .. name, "")
    else
      put("header." .. name, header[2])
    end
  end
  return fields
end

-- Start a batch: its arguments for lib.append begin with count, size and max_timestamp.
local function new_batch(log)
  local args = { 0, 0, 0, "-1", "-1", "-1", "-1" }
  return {
    log = log, args = args, last = #args, count = 0, size = 0, newest = 0,
    now_ms = clock.now_ms(),
  }
end

-- Add a record whose names and values are words[from..to]. Without a timestamp it gets the time of
-- Redis.
local function add_record(batch, words, from, to)
  local args, at, n = batch.args, batch.last + 1, batch.count + 1
  local log = batch.log
  local last, size, headers = at, batch.size + OVERHEAD, 0
  local key, value, timestamp
  for i = from, to, 2 do
    local name, word = words[i], words[i + 1]
    local earlier
    if name == "value" then
      earlier, value = value, word
    elseif name == "key" then
      earlier, key = key, word
    elseif name == "timestamp" then
      earlier, timestamp = timestamp, tonumber(time_of(word, n))
    elseif string.find(name, "^header%.") or string.find(name, "^null%.header%.") then
      headers = headers + 1
      if name == "header.korvet-expected-offset" and not log.has_offsets then
        refuse(log.stream .. " has no offsets of keys: set the topic's table.offsets.enable")
      end
    else
      refuse("record " .. n .. " has the unknown field " .. name)
    end
    if earlier then
      refuse("record " .. n .. " has " .. name .. " twice")
    end
    args[last + 1], args[last + 2] = name, word
    last, size = last + 2, size + #name + #word
  end
  if headers > MAX_HEADERS then
    refuse("record " .. n .. " has " .. headers .. " headers, max " .. MAX_HEADERS)
  end
  if not timestamp then
    timestamp = batch.now_ms
    args[last + 1], args[last + 2] = "timestamp", num.text(timestamp)
    last, size = last + 2, size + #"timestamp" + #args[last + 2]
  end
  args[at] = last - at
  batch.last, batch.count, batch.size = last, n, size
  batch.newest = math.max(batch.newest, timestamp)
end

-- Return the arguments of a batch for lib.append.
local function finished(batch)
  if batch.count == 0 then
    refuse("there are no records")
  end
  local args = batch.args
  args[1], args[2], args[3] = batch.count, num.text(batch.size), num.text(batch.newest)
  return args
end

-- Return the arguments of records that are given as tables.
local function args_of(log, records)
  local batch = new_batch(log)
  for n, record in ipairs(type(records) == "table" and records or {}) do
    local fields = fields_of(record, n)
    add_record(batch, fields, 1, #fields)
  end
  return finished(batch)
end

-- Refuse what lib.append does.
local function check_answer(log, error, offset)
  if error == codes.INVALID_UPDATE_VERSION then
    refuse("the newest record of a key in " .. log.stream .. " has the offset " .. num.text(offset))
  elseif error == codes.INVALID_RECORD then
    refuse("a korvet-dedupe-id has more than 128 bytes, or a korvet-expected-offset is no integer "
      .. "or has no key")
  elseif error and error ~= codes.NONE then
    refuse("entries of " .. log.stream .. " are being numbered or added to its table: repeat the "
      .. "call")
  end
end

-- Append a batch and return the first offset.
local function put(log, args)
  local answer = append.put(log, args, 1)
  append.close(log)
  check_answer(log, answer[1], answer[2])
  return answer[2]
end

--- Append records; return the first offset.
function M.append(keys, topic_id, records, stamp)
  local log = open(keys, topic_id, stamp)
  return put(log, args_of(log, records))
end

--- Raise the error that append would raise.
function M.check(keys, topic_id, records, stamp)
  local log = open(keys, topic_id, stamp)
  local args = args_of(log, records)
  if log.table then
    local topic_table = require("lib.topic_table")
    check_answer(log, topic_table.read(log, args, 1, args[1], false):refusal())
  end
end

--- Append records that are given as strings; return the first offset.
function M.append_fields(keys, args)
  local log = open(keys, args[1], args[2] == "1")
  local batch, at, most = new_batch(log), 3, #args
  while at <= most do
    local count = tonumber(args[at])
    if not count or count < 0 or count % 2 ~= 0 or at + count > most then
      refuse("argument " .. at .. " is not the number of fields and values of a record")
    end
    add_record(batch, args, at + 1, at + count)
    at = at + 1 + count
  end
  return put(log, finished(batch))
end

--- The same as a Redis function.
function M.append_now(keys, args)
  clock.forget()
  return M.append_fields(keys, args)
end

local REFUSED = {
  [codes.UNKNOWN_MEMBER_ID] = "is not in the group",
  [codes.STALE_MEMBER_EPOCH] = "does not own all partitions since that epoch",
  [codes.INVALID_RECORD_STATE] = "did not begin at the committed offsets",
}
local CELLS = 5

--- Raise the error that commit would raise.
function M.check_commit(keys, args)
  local offsets = type(keys) == "table" and keys[3]
  for i, part in ipairs({ "consumer_members", "partition_owners" }) do
    if type(offsets) ~= "string" or keys[i] ~= "{" .. offsets .. "}:" .. part then
      refuse("key " .. i .. " of the commit is {" .. (offsets or "") .. "}:" .. part)
    end
  end
  if type(args) ~= "table" or #args < 2 or (#args - 2) % CELLS ~= 0 then
    refuse("a commit has member id, member epoch, and five strings for each partition")
  end
  for i, word in ipairs(args) do
    text_of(word, "argument " .. i, 1)
  end
  for i = 3, #args, CELLS do
    if not string.find(args[i], ":%d+$") or not string.find(args[i + 2], "^%d+$")
      or #args[i + 3] ~= 32 then
      refuse("arguments " .. i .. " to " .. i + 4 .. " are no commit of a partition")
    end
  end
  if not tonumber(args[2]) then
    refuse("the member epoch is not a number")
  end
  local owned_commit = require("lib.owned_commit")
  local verdict = owned_commit.check(keys[1], keys[2], offsets, args)
  if verdict ~= codes.NONE then
    refuse("member " .. args[1] .. " of epoch " .. args[2] .. " " .. REFUSED[verdict])
  end
end

--- Commit offsets for a member that owns the partitions.
function M.commit(keys, args)
  M.check_commit(keys, args)
  local owned_commit = require("lib.owned_commit")
  owned_commit.put(keys[3], args)
end

--- The same as a Redis function.
function M.commit_now(keys, args)
  clock.forget()
  M.commit(keys, args)
  return redis.status_reply("OK")
end

-- Return the plan of an acknowledgement. Raise the error that acknowledge raises.
local function plan_of(keys, args)
  local tag = type(keys) == "table" and string.match(keys[1] or "", "^({.+}):log$")
  if not tag or keys[2] ~= tag .. ":share" or keys[3] ~= tag .. ":share_runs" then
    refuse("the keys of an acknowledgement are a partition's :log, :share and :share_runs")
  end
  if type(args) ~= "table" or #args < 12 then
    refuse("the arguments of an acknowledgement are those of the script share.acknowledge")
  end
  local share_acknowledge = require("lib.share_acknowledge")
  local plan = share_acknowledge.plan(keys, args)
  if plan.error ~= codes.NONE or plan.next >= 0 then
    refuse("member " .. args[2] .. " has not acquired these records of " .. tag)
  end
  return plan
end

--- Raise the error that acknowledge would raise.
function M.check_acknowledge(keys, args)
  plan_of(keys, args)
end

--- Acknowledge records for a member that has acquired them.
function M.acknowledge(keys, args)
  local share_acknowledge = require("lib.share_acknowledge")
  share_acknowledge.write(plan_of(keys, args))
end

--- The same as a Redis function.
function M.acknowledge_now(keys, args)
  clock.forget()
  M.acknowledge(keys, args)
  return redis.status_reply("OK")
end

-- Multiply by murmur2's constant, below 2^32.
local function mixed(a)
  local low = a % 65536
  return (low * 1540483477 + (a - low) / 65536 * 1540483477 % 65536 * 65536) % 2 ^ 32
end

-- Not by the library `bit`: lua/ uses what every Lua 5.1 has.
local function xor(a, b)
  local found, unit = 0, 1
  while a > 0 or b > 0 do
    local x, y = a % 2, b % 2
    if x ~= y then
      found = found + unit
    end
    a, b, unit = (a - x) / 2, (b - y) / 2, unit * 2
  end
  return found
end

local function shifted(a, bits)
  return math.floor(a / 2 ^ bits)
end

--- Return the partition of a key.
function M.partition_of(key, count)
  count = tonumber(count)
  if type(key) ~= "string" or not count or count < 1 or count % 1 ~= 0 then
    refuse("partition_of takes a key and the number of partitions")
  end
  local size = #key
  local hash, at = xor(2538058380, size), 1
  while size - at >= 3 do
    local a, b, c, d = string.byte(key, at, at + 3)
    local word = mixed(a + b * 256 + c * 65536 + d * 16777216)
    hash, at = xor(mixed(hash), mixed(xor(word, shifted(word, 24)))), at + 4
  end
  if at <= size then
    local a, b, c = string.byte(key, at, size)
    hash = mixed(xor(hash, a + (b or 0) * 256 + (c or 0) * 65536))
  end
  hash = mixed(xor(hash, shifted(hash, 13)))
  return xor(hash, shifted(hash, 15)) % 2 ^ 31 % count
end

return M
