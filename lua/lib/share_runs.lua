--- The state of share groups in a partition (KIP-932): a hash and a sorted set for all groups.
---
--- A field of the hash is a group, its value "end:floor:epoch:available:acquired:acknowledged:
--- archived:full:dead:copied:producer:ordered:mark". Records from `end` on have no state yet.
--- `floor` is the log start that the state knows. Then the number of records that are available and
--- acquired, and of those ever acknowledged and archived. `full` is 1 if a consumer may wait for
--- the acknowledgement of a record. `dead` is the number of dead letters ever: records archived
--- while the group had a dead letter queue. `copied` of them are in that queue, written by the
--- idempotent producer `producer`. `ordered` is 1 if the group's records are ordered by key.
--- `mark` is that of lib.clock for the times of the rows.
---
--- The sorted set has a row for each run of records with one state. All scores are 0, so that rows
--- are in the order of their bytes; offsets and times have 16 digits.
---   <group>:a:<first>:<last>:<deliveries>                   available
---   <group>:b:<first>:<last>:<deliveries>:<time>:<member>   acquired until `time`; without a
---                                                           member: available from `time` on
---   <group>:c:<time>:<first>                                the b rows by time
---   <group>:d:...                                           dead letters (lib.dead_letters)
---   <group>:e:... to <group>:g:...                          the order by key (lib.share_order)
--- An offset below `end` in no run of a or b is finished, or holds no record.
local chunks = require("lib.chunks")
local clock = require("lib.clock")
local dead_letters = require("lib.dead_letters")
local num = require("lib.num")
local share_order = require("lib.share_order")

local M = {}

M.AVAILABLE, M.ACQUIRED, M.TIMES = "a", "b", "c"
local FIRST_PAGE, LAST_PAGE = 8, 128
local NUMBERS = {
  "ends", "floor", "epoch", "available", "acquired", "acknowledged", "archived", "full", "dead",
  "copied", "producer", "ordered", "mark",
}

local function blank(share, runs, group)
  return {
    share = share, runs = runs, group = group, text = "", added = {}, removed = {}, freed = {},
    finished = {}, dead_letters = {},
  }
end

--- Return the group's state as a table, or nil if it has none. `has_queue`: whether archived
--- records become dead letters.
function M.open(share, runs, group, has_queue)
  local text = redis.call("HGET", share, group)
  if not text then
    return nil
  end
  local state = blank(share, runs, group)
  state.text, state.has_queue = text, has_queue
  local at = 1
  for digits in string.gmatch(text, "%d+") do
    state[NUMBERS[at]], at = tonumber(digits), at + 1
  end
  return state
end

--- Return a new state whose first record is `start`; nothing is written yet.
function M.create(share, runs, group, start, floor, epoch)
  local state = blank(share, runs, group)
  for _, name in ipairs(NUMBERS) do
    state[name] = 0
  end
  state.ends, state.floor, state.epoch = start, floor, epoch
  return state
end

local function prefix(state, kind)
  return state.group .. ":" .. kind .. ":"
end

local function parse(text, size)
  local rest = string.sub(text, size + 1)
  local first, last, deliveries, more = string.match(rest, "^(%d+):(%d+):(%d+)(.*)$")
  local row = {
    text = text, first = tonumber(first), last = tonumber(last), deliveries = tonumber(deliveries),
  }
  if more ~= "" then
    local time, member = string.match(more, "^:(%d+):(.*)$")
    row.time, row.member = tonumber(time), member
  end
  return row
end

--- Return at most `count` rows of the kind whose first offset is in first..last.
function M.rows(state, kind, first, last, count)
  local start = prefix(state, kind)
  local from, to = "[" .. start .. num.padded(first), "(" .. start .. num.padded(last) .. ";"
  local found = redis.call("ZRANGE", state.runs, from, to, "BYLEX", "LIMIT", 0, count)
  for i = 1, #found do
    found[i] = parse(found[i], #start)
  end
  return found
end

--- Return the row of the kind that holds the offset, or nil.
function M.covering(state, kind, offset)
  local start = prefix(state, kind)
  local text = redis.call(
    "ZRANGE", state.runs, "(" .. start .. num.padded(offset) .. ";", "[" .. start, "BYLEX", "REV",
    "LIMIT", 0, 1
  )[1]
  local row = text and parse(text, #start)
  return row and row.last >= offset and row or nil
end

--- Return a function that returns the next row of the kind that holds an offset of first..last; nil
--- after the last one. It reads the sorted set in pages: changes must not be written meanwhile.
function M.overlapping(state, kind, first, last)
  local page, at, size, from, done = {}, 0, FIRST_PAGE, first, false
  local covering = M.covering(state, kind, first)
  if covering then
    page[1] = covering
    from = covering.last + 1
  end
  return function()
    at = at + 1
    if at > #page and not done and from <= last then
      page, at = M.rows(state, kind, from, last, size), 1
      done, size = #page < size, math.min(2 * size, LAST_PAGE)
      if #page > 0 then
        from = page[#page].last + 1
      end
    end
    return page[at]
  end
end

--- Return the first row of the kind, or nil.
function M.first(state, kind)
  return M.rows(state, kind, 0, state.ends, 1)[1]
end

--- Return the offset of the first record below the state's end that can be acquired, or nil.
function M.first_available(state)
  if state.ordered == 1 then
    return share_order.first_ready(state)
  end
  local row = M.first(state, M.AVAILABLE)
  return row and row.first
end

--- Return the share-partition start offset: the first that is not finished.
function M.start(state)
  local available, acquired = M.first(state, M.AVAILABLE), M.first(state, M.ACQUIRED)
  return math.min(
    state.ends, available and available.first or state.ends,
    acquired and acquired.first or state.ends
  )
end

--- Return the time of the next expired lock or ended delay, or nil.
function M.next_time(state)
  local start = prefix(state, M.TIMES)
  local text = redis.call(
    "ZRANGE", state.runs, "[" .. start, "(" .. state.group .. ":d", "BYLEX", "LIMIT", 0, 1
  )[1]
  return text and tonumber(string.sub(text, #start + 1, #start + 16))
end

local function time_text(state, time, first)
  return prefix(state, M.TIMES) .. num.padded(time) .. ":" .. num.padded(first)
end

--- Remove a row.
function M.remove(state, row)
  state.removed[#state.removed + 1] = row.text
  if row.time then
    state.removed[#state.removed + 1] = time_text(state, row.time, row.first)
  end
end

-- Add a row; join it to the row added before if that ends just below and has the same `rest`.
local function add(state, kind, first, last, rest, time)
  local before = state.before
  if before and before.kind == kind and before.rest == rest and before.last + 1 == first then
    before.last = last
  else
    before = { kind = kind, first = first, last = last, rest = rest, time = time }
    state.added[#state.added + 1], state.before = before, before
  end
end

--- Add a run of available records.
function M.add_available(state, first, last, deliveries)
  if first <= last then
    add(state, M.AVAILABLE, first, last, num.text(deliveries))
  end
end

--- Add a run of records acquired by the member until `time`; without a member: available from then.
function M.add_acquired(state, first, last, deliveries, time, member)
  if first <= last then
    state.mark = math.max(state.mark, clock.mark(clock.now_ms()))
    local rest = num.text(deliveries) .. ":" .. num.text(time) .. ":" .. member
    add(state, M.ACQUIRED, first, last, rest, time)
  end
end

--- Write the rows removed and added so far.
function M.flush(state)
  chunks.call("ZREM", state.runs, state.removed)
  local values = {}
  local function put(text)
    values[#values + 1], values[#values + 2] = 0, text
  end
  for _, row in ipairs(state.added) do
    put(
      prefix(state, row.kind) .. num.padded(row.first) .. ":" .. num.text(row.last) .. ":"
        .. row.rest
    )
    if row.time then
      put(time_text(state, row.time, row.first))
    end
  end
  for _, letter in ipairs(state.dead_letters) do
    put(dead_letters.format(state, letter))
  end
  chunks.call("ZADD", state.runs, values)
  for _, run in ipairs(state.freed) do
    share_order.free(state, run[1], run[2])
  end
  for _, run in ipairs(state.finished) do
    state.found_head = share_order.finish(state, run[1], run[2]) or state.found_head
  end
  state.removed, state.added, state.before, state.dead_letters = {}, {}, nil, {}
  state.freed, state.finished = {}, {}
end

--- Write the rows and the group's field, if they changed.
function M.save(state)
  M.flush(state)
  local numbers = {}
  for i, name in ipairs(NUMBERS) do
    numbers[i] = num.text(state[name])
  end
  local text = table.concat(numbers, ":")
  if text ~= state.text then
    redis.call("HSET", state.share, state.group, text)
  end
end

--- Note that records are finished: accepted, archived or deleted.
function M.finish(state, first, last)
  if state.ordered == 1 then
    state.finished[#state.finished + 1] = { first, last }
  end
end

--- Make acquired records available at once.
function M.make_available(state, first, last, deliveries)
  M.add_available(state, first, last, deliveries)
  if state.ordered == 1 then
    state.freed[#state.freed + 1] = { first, last }
  end
end

--- Archive records; with a dead letter queue they become dead letters.
function M.archive(state, first, last, deliveries, reason)
  state.archived = state.archived + last - first + 1
  if state.has_queue then
    dead_letters.add(state, first, last, deliveries, reason)
  end
end

--- Return records of an ended lock or a release to the group, from `time` on if given; archive
--- those that were delivered `limit` times.
function M.free(state, first, last, deliveries, limit, time)
  if deliveries >= limit then
    M.archive(state, first, last, deliveries, dead_letters.DELIVERED_TOO_OFTEN)
    M.finish(state, first, last)
    return
  end
  state.available = state.available + last - first + 1
  if time then
    M.add_acquired(state, first, last, deliveries, time, "")
  else
    M.make_available(state, first, last, deliveries)
  end
end

--- Return the time that the rows' times are compared with: the clock's, or a later one if that was
--- set back and M.follow_clock has not run since.
function M.now_ms(state)
  local now_ms = clock.now_ms()
  return now_ms + clock.ahead_ms(state.mark, now_ms)
end

--- Write earlier times for all rows if the clock was set back, so that each is due after its own
--- duration.
function M.follow_clock(state)
  local ahead_ms = M.now_ms(state) - clock.now_ms()
  if ahead_ms == 0 then
    return
  end
  state.mark = 0
  for row in M.overlapping(state, M.ACQUIRED, 0, state.ends) do
    M.remove(state, row)
    local time = math.max(0, row.time - ahead_ms)
    M.add_acquired(state, row.first, row.last, row.deliveries, time, row.member)
  end
  M.flush(state)
end

--- Free records whose lock has expired or whose delay has ended, at most `most` runs, and write
--- them. Return whether there were as many. `has_expired` is set if a member lost records.
function M.free_expired(state, now_ms, limit, most)
  local start = prefix(state, M.TIMES)
  local found = redis.call(
    "ZRANGE", state.runs, "[" .. start, "(" .. start .. num.padded(now_ms) .. ";", "BYLEX",
    "LIMIT", 0, most
  )
  for _, text in ipairs(found) do
    local first = tonumber(string.sub(text, #start + 18))
    local row = M.rows(state, M.ACQUIRED, first, first, 1)[1]
    M.remove(state, row)
    if row.member == "" then
      M.make_available(state, row.first, row.last, row.deliveries)
    else
      state.has_expired = true
      state.acquired = state.acquired - (row.last - row.first + 1)
      M.free(state, row.first, row.last, row.deliveries, limit)
    end
  end
  if #found > 0 then
    M.flush(state)
  end
  return #found == most
end

--- Drop the records below the log start, which are deleted, at most `most` runs, and write that.
--- Return whether there are more.
function M.drop_below(state, start, most)
  if start <= state.floor then
    return false
  end
  local dropped = 0
  for _, kind in ipairs({ M.AVAILABLE, M.ACQUIRED }) do
    for row in M.overlapping(state, kind, 0, start - 1) do
      if dropped == most then
        M.flush(state)
        return true
      end
      dropped = dropped + 1
      local gone = math.min(row.last, start - 1) - row.first + 1
      M.remove(state, row)
      M.finish(state, row.first, row.first + gone - 1)
      if kind == M.AVAILABLE then
        M.add_available(state, start, row.last, row.deliveries)
      else
        M.add_acquired(state, start, row.last, row.deliveries, row.time, row.member)
      end
      if kind == M.AVAILABLE or row.member == "" then
        state.available = state.available - gone
      else
        state.acquired = state.acquired - gone
      end
    end
  end
  M.flush(state)
  state.floor, state.ends = start, math.max(state.ends, start)
  return false
end

return M
