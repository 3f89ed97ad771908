--- Number foreign entries: give offsets to those that Korvet's scripts did not add.
---
--- Everything below `next` of a log's state is numbered; nothing at or above it is handed out, and
--- no record is appended above an entry that is not numbered. Numbers follow the ids:
---   - an id's natural offset, if that is not below `next`;
---   - else the next one. In time mode that is so once a millisecond has more than 2^bits entries:
---     the further ones borrow the offsets of the milliseconds after it. These borrow in turn until
---     an id's natural offset is free. lib.offset_map has the exceptions.
--- An id that no offset can have, such as one in nanoseconds, gets none. The stream's next ids are
--- then above it: the log continues at lib.offset_map's TOP. If TOP is exhausted, nothing can be
--- appended until log.rebuild has replaced the stream.
local clock = require("lib.clock")
local entry_id = require("lib.entry_id")
local fields = require("lib.fields")
local num = require("lib.num")
local offset_map = require("lib.offset_map")

local M = {}

local LAST_SEQUENCE = "18446744073709551615"
-- Milliseconds of ids that one script numbers, each with 2 to 4 calls: some 20 ms of Redis's time.
M.STEPS = 2000
local PAGE, PAGES, MOST_BYTES = 100, 50, 33554432
-- No gap between the sequences of foreign entries reaches these offsets: they are left for appends.
local GAPS_END = entry_id.LAST - 2 ^ 47

-- Return the id of a reply of one entry, or nil, and count its bytes.
local function id_in(log, rows)
  if not rows[1] then
    return nil
  end
  for _, word in ipairs(rows[1][2]) do
    log.bytes_read = (log.bytes_read or 0) + #word
  end
  return rows[1][1]
end

local function first_id(log, from)
  return id_in(log, redis.call("XRANGE", log.stream, from, "+", "COUNT", 1))
end

local function last_id(log, to, from)
  return id_in(log, redis.call("XREVRANGE", log.stream, to, from, "COUNT", 1))
end

local function split(id)
  local ms, seq = string.match(id, "^(%d+)%-(%d+)$")
  return ms, tonumber(seq)
end

-- Return the last id of these milliseconds that may have an offset.
local function last_of(ms)
  return ms .. "-" .. (ms == offset_map.TOP and num.text(offset_map.TOP_END - 1) or LAST_SEQUENCE)
end

--- Return whether entries may have been added above the last one that is numbered.
function M.is_due(log)
  if log.map:is_exhausted() then
    return false
  end
  return entry_id.has_above(log.stream, log.map:last(log.next))
end

-- Add a row at `next`. Return false if the log has too many: up to TOP the ids have no offsets.
local function add_row(log, ms, seq, kind)
  local may = #log.map.rows < offset_map.MOST
  log.map:add(ms, seq, log.next, may and kind or "none")
  log.is_shifted = true
  return may
end

-- Continue the log at TOP, above `last`, the greatest id ever, or note that TOP is exhausted. The
-- entries from `from` on, if any, have no offset.
local function go_to_top(log, last, from)
  local rows, ms, seq = log.map.rows, split(last)
  local is_last = ms == offset_map.TOP and seq + 1 >= offset_map.TOP_END
  if log.map:is_exhausted() then
    return
  end
  if #rows > 0 and rows[#rows].ms == offset_map.TOP and not is_last
    and (ms ~= offset_map.TOP or (log.map:offset(last) or GAPS_END) < GAPS_END) then
    return
  end
  if ms ~= offset_map.TOP then
    seq = 0
    redis.call("XSETID", log.stream, offset_map.TOP .. "-0")
  end
  if is_last then
    log.map:add(offset_map.TOP, offset_map.TOP_END, log.next, "none")
  else
    log.map:add(offset_map.TOP, seq + 1, log.next, "run")
  end
  log.is_shifted = true
  for _ = 1, from and PAGES or 0 do
    local page = redis.call("XRANGE", log.stream, from, "+", "COUNT", PAGE)
    log.unnumbered = (log.unnumbered or 0) + #page
    if #page < PAGE or page[#page][1] == last then
      break
    end
    from = "(" .. page[#page][1]
  end
end

-- Let the entries of one millisecond from `id` to sequence `last` follow at `next`. Return false
-- if they can have no offsets.
local function number_run(log, ms, seq, last)
  if log.mode == "time" and ms ~= offset_map.TOP then
    log.next = math.max(log.next, tonumber(ms) * 2 ^ log.bits)
  end
  local ends = log.next + (last - seq) + 1
  if ends >= GAPS_END or not add_row(log, ms, seq, "run") then
    return false
  end
  log.next = ends
  return true
end

-- Number the entries of one millisecond, of which `id` is the first new one. Return true, and `id`
-- if only that is numbered. Return false if some can have none, and the first without an offset if
-- that is another one.
local function number_one(log, id)
  local ms, seq = split(id)
  local row, natural = log.map.rows[#log.map.rows], entry_id.offset(log.mode, log.bits, id)
  if ms == offset_map.TOP and seq >= offset_map.TOP_END then
    return false
  end
  local greatest = last_id(log, last_of(ms), id)
  local _, last = split(greatest)
  if row and row.kind == "run" and row.ms == ms then
    local ends = row.offset + (last - row.seq) + 1
    if ends < GAPS_END then
      log.next = ends
      return true
    end
    return ms == offset_map.TOP and number_run(log, ms, seq, seq), id
  end
  if not natural and log.mode ~= "time" and ms ~= offset_map.TOP then
    return false
  end
  if not natural or natural < log.next then
    return number_run(log, ms, seq, last)
  end
  if row and row.kind == "run" then
    log.next = natural
    if not add_row(log, ms, seq, "natural") then
      return false
    end
  end
  local at = entry_id.offset(log.mode, log.bits, greatest)
  if at then
    log.next = at + 1
    return true
  end
  -- More than the millisecond's own offsets: in time mode the further entries follow as a run.
  local unit = log.mode == "time" and 2 ^ log.bits or entry_id.NATURAL_END
  local over = first_id(log, ms .. "-" .. num.text(unit))
  log.next = entry_id.offset(log.mode, log.bits, last_id(log, "(" .. over, id)) + 1
  if log.mode ~= "time" then
    return false, over
  end
  ms, seq = split(over)
  return number_run(log, ms, seq, last)
end

-- Return whether ids of these milliseconds may have offsets.
local function is_numbered(log, ms)
  if log.mode == "time" then
    return ms == offset_map.TOP or tonumber(ms) < entry_id.NATURAL_END / 2 ^ log.bits
  end
  return ms == offset_map.TOP or ms == entry_id.DENSE
end

--- Note for retention that foreign entries above `next` are at most as young as this call: ids of
--- dense mode hold no time. What was appended before them keeps its own time. M.save writes it.
function M.keep_times(log)
  if log.mode == "time" or log.was_untimed then
    return
  end
  local foreign_entries = require("lib.foreign_entries")
  log.counted = foreign_entries.before_numbering(log.stream, log.hash)
  log.untimed, log.was_untimed = math.max(log.untimed or -1, clock.now_ms()), true
end

--- Number the entries above `next`, of at most `steps` milliseconds. Return whether all are.
function M.number(log, steps)
  steps = steps or M.STEPS
  local id = first_id(log, log.map:from(log.next))
  if id then
    M.keep_times(log)
  end
  for n = 1, steps do
    -- One at least, however large its entries are: the next call would read no fewer bytes.
    if not id or n > 1 and (log.bytes_read or 0) > MOST_BYTES * steps / M.STEPS then
      break
    end
    local ms = split(id)
    local is_whole, over = false, nil
    if is_numbered(log, ms) then
      is_whole, over = number_one(log, id)
    end
    if not is_whole then
      go_to_top(log, last_id(log, "+", "-"), over or id)
      return true
    end
    id = first_id(log, "(" .. (over or last_of(ms)))
  end
  if not id and #log.map.rows > offset_map.MANY then
    go_to_top(log, last_id(log, "+", "-"))
  end
  return not id
end

--- Move `next` above every id ever in the stream, after an append was refused: the entry may be
--- gone, or have no offset. The ids of that many offsets from `base` on, or from `next`, have them.
function M.pass_last(log, base, offsets)
  local info = redis.pcall("XINFO", "STREAM", log.stream)
  local id = not info.err and fields.get(info, "last-generated-id") or "0-0"
  if id == "0-0" then
    return
  end
  local ms, own = split(id), log.map:offset(id)
  if own and own < GAPS_END then
    log.next = math.max(log.next, own + 1)
  elseif log.mode == "time" and tonumber(ms) + 1 < entry_id.NATURAL_END / 2 ^ log.bits then
    log.next = math.max(log.next, (tonumber(ms) + 1) * 2 ^ log.bits)
  elseif log.mode == "time" or id ~= entry_id.BEFORE_DENSE then
    go_to_top(log, id)
  end
  if math.max(base, log.next) + offsets > entry_id.NATURAL_END and not log.map:top() then
    go_to_top(log, id)
  end
end

--- Write what numbering has changed, but for `next`.
function M.save_changes(log)
  if log.counted then
    redis.call("HSET", log.hash, "counted", log.counted)
  end
  if log.was_untimed then
    redis.call("HSET", log.hash, "untimed_append_ms", log.untimed)
  end
  if log.is_shifted then
    redis.call("HSET", log.hash, "shifts", log.map:text(log.start))
  end
  if log.unnumbered then
    redis.call("HINCRBY", log.hash, "unnumbered", log.unnumbered)
  end
  log.counted, log.was_untimed, log.unnumbered = nil, nil, nil
end

--- Write what numbering has changed.
function M.save(log)
  redis.call("HSET", log.hash, "next", log.next)
  M.save_changes(log)
end

--- Raise an error if nothing can be appended, after writing what numbering has changed.
function M.check_room(log)
  if log.map:is_exhausted() then
    M.save(log)
    error(
      "the ids of " .. log.stream .. " are exhausted by an entry that another program added: "
        .. "`korvet topics repair` copies the log without it", 0
    )
  end
end

--- Return a stored log for M.settle; `is_due`: entries may have been added that are not numbered.
function M.open(stream, hash)
  local row = redis.call("HMGET", hash, "format", "mode", "bits", "next", "start", "shifts")
  local mode, bits, next_offset = row[2], tonumber(row[3]), tonumber(row[4])
  local log = {
    stream = stream, hash = hash, mode = mode, bits = bits, next = next_offset,
    start = tonumber(row[5]), map = offset_map.open(mode, bits, row[6]),
  }
  log.is_due = row[1] == "record" and M.is_due(log)
  return log
end

--- Number the entries of a log from M.open if some are not. Return the log end offset, the log's
--- map, and whether all entries are numbered.
function M.settle(log, steps)
  if not log.is_due then
    return log.next, log.map, true
  end
  local is_done = M.number(log, steps)
  M.save(log)
  redis.call("PUBLISH", log.stream, log.next)
  return log.next, log.map, is_done
end

return M
