--- Acknowledge records that a member of a share group has acquired: KEYS and ARGV are those of
--- share.acknowledge.
local codes = require("lib.codes")
local dead_letters = require("lib.dead_letters")
local share_runs = require("lib.share_runs")

local M = {}

local RANGES, STEP = 10, 1000
local ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

local function check_ranges(args)
  local before = -1
  for i = RANGES, #args, 3 do
    local first, last, type = tonumber(args[i]), tonumber(args[i + 1]), tonumber(args[i + 2])
    if not (first and last and type and before < first and first <= last and type <= RENEW) then
      error("share.acknowledge: the ranges are not ascending, or a type is not 0 to 4", 0)
    end
    before = last
  end
end

-- Give the records first..last of an acquired row the state that the type asks for.
local function acknowledge(plan, args, row, first, last, type)
  local state, count = plan.state, last - first + 1
  if type == RENEW then
    local time = plan.now_ms + tonumber(args[4])
    share_runs.add_acquired(state, first, last, row.deliveries, time, row.member)
    return
  end
  state.acquired = state.acquired - count
  if type ~= RELEASE then
    share_runs.finish(state, first, last)
  end
  if type == ACCEPT then
    state.acknowledged = state.acknowledged + count
  elseif type == RELEASE then
    local delay_ms = math.min(
      tonumber(args[7]), tonumber(args[6]) * 2 ^ (row.deliveries - 1)
    )
    local time = delay_ms > 0 and plan.now_ms + delay_ms or nil
    share_runs.free(state, first, last, row.deliveries, tonumber(args[5]), time)
    plan.wakes = true
  elseif type == REJECT then
    share_runs.archive(state, first, last, row.deliveries, dead_letters.REJECTED)
  else
    state.archived = state.archived + count
  end
end

--- Return what M.write is to write, and `next`; or a table whose `error` says why the
--- acknowledgement is refused. Nothing is written.
function M.plan(keys, args)
  check_ranges(args)
  local known = redis.call("HGET", keys[1], "topic_id")
  if known ~= args[3] then
    return { error = known and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION }
  end
  local state = share_runs.open(keys[2], keys[3], args[1], args[8] == "1")
  if not state then
    return { error = codes.UNKNOWN_TOPIC_OR_PARTITION }
  end
  local member, is_fenced = args[2], args[9] == "1"
  local start = share_runs.start(state)
  local plan = {
    error = codes.NONE, state = state, now_ms = share_runs.now_ms(state), wakes = state.full == 1,
    next = -1,
  }
  -- The acquired row at hand, of which the records from `at` on are not acknowledged yet.
  local row, at, rows
  local final = tonumber(args[#args - 1])
  local function leave()
    if row then
      share_runs.add_acquired(state, at, row.last, row.deliveries, row.time, row.member)
    end
  end
  local function load(offset, follows)
    leave()
    rows = follows and rows or share_runs.overlapping(state, share_runs.ACQUIRED, offset, final)
    row = rows()
    if row then
      share_runs.remove(state, row)
      at = row.first
    end
  end

  local reached
  local runs_done = 0
  for i = RANGES, #args, 3 do
    local first, last, type = tonumber(args[i]), tonumber(args[i + 1]), tonumber(args[i + 2])
    if not is_fenced then
      first = math.max(first, start)
    end
    if last >= state.ends then
      return { error = start < state.ends and codes.INVALID_REQUEST or codes.INVALID_RECORD_STATE }
    end
    while first <= last and runs_done < STEP do
      if not (row and at <= first and first <= row.last) then
        load(first, rows ~= nil and reached == first)
      end
      local has = row and at <= first and row.member == member
      if not (has and (is_fenced or row.time > plan.now_ms)) then
        return { error = codes.INVALID_RECORD_STATE }
      end
      share_runs.add_acquired(state, at, first - 1, row.deliveries, row.time, member)
      local upto = math.min(last, row.last)
      acknowledge(plan, args, row, first, upto, type)
      at, first = upto + 1, upto + 1
      reached = first
      runs_done = runs_done + 1
    end
    if first <= last then
      plan.next = first
      break
    end
  end
  leave()
  return plan
end

--- Write what M.plan has returned.
function M.write(plan)
  local state = plan.state
  state.full = 0
  share_runs.save(state)
  if plan.wakes or state.found_head then
    redis.call("PUBLISH", state.share, state.group)
  end
end

return M
