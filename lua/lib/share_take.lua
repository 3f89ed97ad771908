--- Acquire records that a broker has read, for a member of a share group.
local share_order = require("lib.share_order")
local share_runs = require("lib.share_runs")

local M = {}

--- Return the first available record of `rows` at or above `from`, as a cursor over them all.
local function cursor(state, from, to)
  local rows = share_runs.overlapping(state, share_runs.AVAILABLE, from, to)
  local c = {}
  -- Load the next row, whose records below `from` stay available.
  function c.advance()
    c.row = rows()
    if c.row then
      share_runs.remove(state, c.row)
      share_runs.add_available(state, c.row.first, from - 1, c.row.deliveries)
      c.at = math.max(c.row.first, from)
    end
  end
  -- Pass the records up to `last`, which are no longer available.
  function c.pass(last)
    state.available = state.available - (last - c.at + 1)
    c.at = last + 1
    if c.at > c.row.last then
      c.advance()
    end
  end
  -- Pass the offsets up to `last`: the log has no record there.
  function c.drop(last)
    while c.row and c.at <= last do
      local upto = math.min(c.row.last, last)
      share_runs.finish(state, c.at, upto)
      c.pass(upto)
    end
  end
  c.advance()
  return c
end

-- Return a function that adds a run to `taken`; it joins adjacent runs with the same deliveries.
local function collector(taken)
  return function(first, last, deliveries)
    local before = taken[#taken]
    if before and before[2] + 1 == first and before[3] == deliveries then
      before[2] = last
    else
      taken[#taken + 1] = { first, last, deliveries }
    end
  end
end

--- Return how many records that were delivered `deliveries` times are acquired at once, or nil
--- without a limit. From half of the delivery limit on it is half as many each time, and one for
--- the last time: a record that stops its consumer does not take others with it to the limit.
local function together(deliveries, limit, most)
  local from = math.max(2, math.ceil(limit / 2))
  if deliveries < from then
    return nil
  end
  local half = math.floor(most / 2 ^ (deliveries - from + 1))
  return deliveries >= limit - 1 and 1 or math.max(1, half)
end

-- Add the rest of the cursor's run again. With `to`, the log has no more records up to it. The
-- state then ends above `to`, else at `reached`; it keeps its end if `reached` is false.
local function finish_scan(state, c, to, reached)
  if to then
    c.drop(to)
  end
  if c.row then
    share_runs.add_available(state, c.at, c.row.last, c.row.deliveries)
  end
  if reached then
    state.ends = math.max(state.ends, to and to + 1 or reached)
  end
end

--- Acquire available records, and records above the state's end, of the ranges in args[at..]: pairs
--- of first and last offset, ascending, all records of the log from `from` to `to`. An offset
--- between them holds no record. Take at most `most`, but without `exact` whole ranges; and at most
--- `room` above the end, by the same rule. Records delivered often are taken alone, and fewer at
--- once. Return the runs: first, last, deliveries.
function M.from_ranges(state, args, at, from, to, most, room, exact, limit)
  local taken, alone, asked = {}, nil, most
  local take = collector(taken)
  local c = cursor(state, from, to)
  -- Records between the end and `from` would be lost.
  local continues = from <= state.ends
  local reached, stopped = from, false
  for i = at, #args, 2 do
    local first, last = tonumber(args[i]), tonumber(args[i + 1])
    if most <= 0 then
      stopped = true
      break
    end
    c.drop(first - 1)
    reached = first
    while c.row and c.at <= last and not (exact and most <= 0) do
      local fewer = together(c.row.deliveries, limit, asked)
      if alone and alone ~= c.row.deliveries or fewer and not alone and #taken > 0 then
        stopped = true
        break
      end
      if fewer and not alone then
        alone, most, exact = c.row.deliveries, math.min(most, fewer), true
      end
      local upto = math.min(c.row.last, last)
      if exact then
        upto = math.min(upto, c.at + most - 1)
      end
      local begin = c.at
      take(begin, upto, c.row.deliveries + 1)
      most, reached = most - (upto - begin + 1), upto + 1
      c.pass(upto)
    end
    local begin, upto = math.max(first, state.ends), last
    local remains = c.row and c.at <= last or continues and begin <= last
    if stopped or exact and most <= 0 and remains or alone and continues and begin <= last then
      stopped = true
      break
    end
    if continues and begin <= last then
      reached = begin
      if room <= 0 then
        stopped = true
        break
      end
      if exact then
        upto = math.min(upto, begin + math.min(most, room) - 1)
      end
      take(begin, upto, 1)
      most, room = most - (upto - begin + 1), room - (upto - begin + 1)
    end
    reached = upto + 1
    if upto < last then
      stopped = true
      break
    end
  end
  finish_scan(state, c, not stopped and to, continues and reached)
  return taken
end

--- Acquire records in the order of their keys: args[at..] has an offset and the key of each record
--- of the log from `from` to `to`. Take at most `most` records, and let at most `room` into the
--- state. Records delivered often are taken alone, and fewer at once.
function M.in_order(state, args, at, from, to, most, room, limit)
  local taken, alone, asked = {}, nil, most
  local take = collector(taken)
  local c = cursor(state, from, to)
  local continues = from <= state.ends
  local reached, stopped = from, false
  local function give(offset, deliveries, is_head)
    if is_head then
      take(offset, offset, deliveries + 1)
      most = most - 1
    else
      share_runs.add_available(state, offset, offset, deliveries)
      state.available = state.available + 1
    end
  end
  for i = at, #args, 2 do
    local offset = tonumber(args[i])
    local is_new = continues and offset >= state.ends
    if most <= 0 or is_new and room <= 0 then
      stopped = true
      break
    end
    c.drop(offset - 1)
    local deliveries = c.row and c.at <= offset and c.row.deliveries or 0
    local fewer = together(deliveries, limit, asked)
    if alone and alone ~= deliveries or fewer and not alone and #taken > 0 then
      stopped = true
      break
    end
    if fewer and not alone then
      alone, most = deliveries, fewer
    end
    if is_new then
      room = room - 1
      give(offset, 0, share_order.enter(state, offset, args[i + 1]))
    elseif c.row and c.at <= offset then
      c.pass(offset)
      give(offset, deliveries, share_order.acquire(state, offset))
    end
    reached = offset + 1
  end
  finish_scan(state, c, not stopped and to, continues and reached)
  return taken
end

return M
