--- Convert between the ids and the offsets of one log, entries at other than natural ids included.
---
--- The field `shifts` of a log's state has the exceptions: rows "ms-seq:offset:kind," in the order
--- of ids. A row describes the ids from its own one on, up to that of the next row:
---   run      they have one `ms`. The first has the offset, the others follow by their `seq`.
---   natural  they are at natural ids.
---   none     they have no offset. The next row has the same offset. The last: see is_exhausted.
--- A log without rows has only natural ids. Rows are added at the end. They are removed if all
--- offsets that they describe are below the log start.
local entry_id = require("lib.entry_id")
local num = require("lib.num")

local M = {}
local Map = {}
Map.__index = Map

--- Ids of this `ms` are above every other. They are used once an id without an offset was added.
M.TOP = "18446744073709551615"
--- Sequences of TOP have no offset from here on: a double cannot represent all of them.
M.TOP_END = entry_id.NATURAL_END
--- A log with more rows continues at TOP, which needs no further ones.
M.MANY = 500
--- Rows of a log, at most: further ids have no offset.
M.MOST = 10000

--- Return the map of a log, given `shifts` of its state.
function M.open(mode, bits, shifts)
  local rows = {}
  for ms, seq, offset, kind in string.gmatch(shifts or "", "(%d+)%-(%d+):(%d+):(%a+),") do
    rows[#rows + 1] = {
      ms = ms, at = tonumber(ms), seq = tonumber(seq), offset = tonumber(offset), kind = kind,
    }
  end
  return setmetatable({ mode = mode, bits = bits, rows = rows }, Map)
end

-- Return the last row for which `before(row)` holds, or nil. It holds for a prefix.
local function last_row(rows, before)
  local low, high = 1, #rows
  while low <= high do
    local middle = math.floor((low + high) / 2)
    if before(rows[middle]) then
      low = middle + 1
    else
      high = middle - 1
    end
  end
  return rows[high]
end

--- Return the offset of an id, or nil if it has none.
function Map:offset(id)
  if #self.rows > 0 then
    local text, seq = string.match(id, "^(%d+)%-(%d+)$")
    local ms, sequence = tonumber(text), tonumber(seq)
    local row = last_row(self.rows, function(each)
      return each.at < ms or each.at == ms and each.seq <= sequence
    end)
    if row and row.kind == "none" then
      return nil
    end
    if row and row.kind == "run" and row.ms == text then
      local offset = row.offset + (sequence - row.seq)
      return offset < entry_id.LAST and offset or nil
    end
  end
  return entry_id.offset(self.mode, self.bits, id)
end

-- Return the last row at or below an offset, or nil.
local function row_of(map, offset)
  return last_row(map.rows, function(each)
    return each.offset <= offset
  end)
end

--- Return the first row of TOP, or nil.
function Map:top()
  for _, row in ipairs(self.rows) do
    if row.ms == M.TOP then
      return row
    end
  end
end

--- Return whether no id is left for an append, since one at or above TOP_END was used.
function Map:is_exhausted()
  local row = self.rows[#self.rows]
  return row ~= nil and row.kind == "none" and row.ms == M.TOP
end

--- Remove what made the ids exhausted.
function Map:reopen()
  table.remove(self.rows)
end

--- Return the id that an entry with this offset has: lower ids have lower offsets, others do not.
function Map:id(offset)
  local row = row_of(self, offset)
  if row and row.kind ~= "natural" then
    return row.ms .. "-" .. num.text(row.seq + (offset - row.offset))
  end
  return entry_id.id(self.mode, self.bits, offset)
end

--- Return the id below which everything is numbered, for a log that ends at offset `ends`.
function Map:last(ends)
  if ends > 0 then
    return self:id(ends - 1)
  end
  return self.mode == "time" and "0-0" or entry_id.BEFORE_DENSE
end

--- Return the first id to read for the entries from an offset on, as XRANGE takes it. At the log's
--- end that is every id above the last entry, whose successor may be no natural one.
function Map:from(offset)
  local row = row_of(self, offset)
  if row and row.offset == offset or offset == 0 then
    return self:id(offset)
  end
  return "(" .. self:id(offset - 1)
end

--- Return the least offset of an append: after a run its natural id is in a later millisecond.
function Map:least_append()
  local row = self.rows[#self.rows]
  local is_run = row and row.kind == "run" and row.ms ~= M.TOP
  return is_run and (row.at + 1) * 2 ^ self.bits or 0
end

--- Return a function that converts the ascending offsets of an append to ids, and the milliseconds
--- of all these ids if they are not natural.
function Map:namer()
  local row = self.rows[#self.rows]
  if row and row.ms == M.TOP then
    return function(offset)
      return M.TOP .. "-" .. num.text(row.seq + (offset - row.offset))
    end, M.TOP
  end
  return entry_id.namer(self.mode, self.bits)
end

--- Add a row.
function Map:add(ms, seq, offset, kind)
  local rows = self.rows
  rows[#rows + 1] = { ms = ms, at = tonumber(ms), seq = seq, offset = offset, kind = kind }
end

--- Note that an entry was appended at `offset`: after a run its natural id needs a row.
function Map:note_append(offset)
  local row = self.rows[#self.rows]
  if not row or row.kind ~= "run" or row.ms == M.TOP then
    return false
  end
  local ms, seq = string.match(entry_id.id(self.mode, self.bits, offset), "^(%d+)%-(%d+)$")
  self:add(ms, tonumber(seq), offset, "natural")
  return true
end

--- Return `shifts` for the log's state, without rows for offsets below `start` only.
function Map:text(start)
  local rows, parts = self.rows, {}
  for i, row in ipairs(rows) do
    if i == #rows or rows[i + 1].offset > start then
      parts[#parts + 1] = row.ms .. "-" .. num.text(row.seq) .. ":" .. num.text(row.offset) .. ":"
        .. row.kind .. ","
    end
  end
  return table.concat(parts)
end

return M
