--- Leave out records whose id the partition knows: the header `korvet-dedupe-id`.
---
--- dedupe      hash  id -> "base:ms:n": the record's offset is base + n, it was appended at ms
--- dedupe_old  hash  the same of earlier records
---
--- The log's state has `dedupe`, "window:max_ids:since": for how many ms an id counts, how many ids
--- a hash takes, and when `dedupe` began. When that is full or its window is over, it takes the
--- place of `dedupe_old`, whose ids are removed all at once. So the last max_ids ids are known, and
--- at most twice as many.
local chunks = require("lib.chunks")
local num = require("lib.num")

local M = {}

local NAME = "header.korvet-dedupe-id"
local LONGEST = 128

-- Return by its number the id of each record that has one, whether one has, and whether one is too
-- long: that counts as none. Of several headers of the name the last counts. An error in the fields
-- is left to the layout's writer.
local function ids_of(args, from, last, count)
  local ids, any, is_long, at = {}, false, false, from
  local fields = tonumber(args[at])
  if not fields or fields < 0 then
    local names, step = fields and -fields or tonumber(args[at + 1]) or 0, fields and 1 or 4
    local first = fields and at + 1 or at + 2
    for i = first, math.min(last, first + step * (names - 1)), step do
      if args[i] == NAME then
        error("no batch: records with a korvet-dedupe-id have fields of their own", 0)
      end
    end
    return ids, false
  end
  for n = 1, count do
    fields = tonumber(args[at])
    if not fields or fields < 0 or at + fields > last then
      return ids, false
    end
    for i = at + fields - 1, at + 1, -2 do
      if args[i] == NAME then
        local id = args[i + 1]
        if #id > LONGEST then
          is_long = true
        elseif id ~= "" then
          ids[n], any = id, true
        end
        break
      end
    end
    at = at + 1 + fields
  end
  return ids, (any or is_long) and at == last + 1, is_long
end

-- Set known[id] to the offset of those ids that the hash has, and whose window is not over.
local function look_up(known, hash, ids, from_ms)
  for i, text in ipairs(chunks.list("HMGET", hash, ids)) do
    if text then
      local base, ms, n = string.match(text, "^(%d+):(%d+):(%d+)$")
      if base and tonumber(ms) > from_ms then
        known[ids[i]] = tonumber(base) + tonumber(n)
      end
    end
  end
end

-- Return the arguments of a batch without the records to leave out, its count and its size.
local function rest(once, args, at, size)
  local words, from, kept = {}, at + 7, once.count - once.left_out
  size = math.floor(size * kept / once.count)
  words[1], words[2] = kept, size
  for i = 3, 7 do
    words[i] = args[at + i - 1]
  end
  local last = 7
  for n = 1, once.count do
    local ends = from + tonumber(args[from])
    if not once.is_left_out[n] then
      for i = from, ends do
        last = last + 1
        words[last] = args[i]
      end
    end
    from = ends + 1
  end
  return words, last, kept, size
end

-- Return the offset of the first record of a batch whose records were appended from `base` on,
-- without those left out; -1 if the batch has no consecutive offsets.
local function first_of(once, base)
  local known, first = once.known, nil
  for n = 1, once.count do
    local id, offset = once.ids[n], base
    if once.is_left_out[n] then
      offset = known[id]
    else
      base = base + 1
      if id then
        known[id] = offset
      end
    end
    first = first or offset
    if offset ~= first + n - 1 then
      return -1
    end
  end
  return first
end

-- Store the ids of the records that were appended from `base` on. Return what `first_of` does.
local function note(once, base)
  local log, ids, left_out = once.log, once.ids, once.is_left_out
  local rows, at, n = {}, 0, 0
  local prefix = num.text(math.max(base, 0)) .. ":" .. num.text(log.now_ms) .. ":"
  for i = 1, once.count do
    if not left_out[i] then
      local id = ids[i]
      if id then
        rows[at + 1], rows[at + 2] = id, prefix .. n
        at = at + 2
      end
      n = n + 1
    end
  end
  if at > 0 then
    local size, since = once.size, once.since
    local is_over = log.now_ms - since >= once.window or size + at / 2 > once.most
    if size > 0 and is_over then
      redis.call("UNLINK", log.old_ids)
      redis.call("RENAME", log.ids, log.old_ids)
      size = 0
    end
    if size == 0 or log.now_ms < since then
      log.dedupe = num.text(once.window) .. ":" .. num.text(once.most) .. ":"
        .. num.text(log.now_ms)
      redis.call("HSET", log.hash, "dedupe", log.dedupe)
    end
    chunks.call("HSET", log.ids, rows)
  end
  return once.left_out == 0 and base or first_of(once, base)
end

--- Find the records of a batch to leave out; nil if none has an id. Return a table: `left_out` is
--- their number, `rest` and `note` are the functions above.
function M.find(log, args, at, last, count)
  local ids, any, is_long = ids_of(args, at + 7, last, count)
  if not any then
    return nil
  end
  local window, most, since = string.match(log.dedupe, "^(%d+):(%d+):(%d+)$")
  window = tonumber(window)
  local known, named, new, is_left_out, left_out = {}, {}, {}, {}, 0
  for n = 1, count do
    local id = ids[n]
    if id and named[id] then
      is_left_out[n], left_out = true, left_out + 1
    elseif id then
      named[id] = n
      new[#new + 1] = id
    end
  end
  local size, from_ms = redis.call("HLEN", log.ids), log.now_ms - window
  if redis.call("HLEN", log.old_ids) > 0 then
    look_up(known, log.old_ids, new, from_ms)
  end
  if size > 0 then
    look_up(known, log.ids, new, from_ms)
  end
  for id in pairs(known) do
    is_left_out[named[id]], left_out = true, left_out + 1
  end
  return {
    log = log, rest = rest, note = note, ids = ids, count = count, known = known,
    is_left_out = is_left_out, left_out = left_out, is_long = is_long, size = size,
    window = window, most = tonumber(most), since = tonumber(since),
  }
end

return M
