-- Walk the records of a batch with LuaJIT; korvet/wire/record_walk.py has the rules.
--
-- Takes the address of the records, which are followed by PADDING zeros, their size without it,
-- their number, and the headers that they may have together. Returns the highest timestamp delta,
-- DECODE if Python has to decide, TOO_MANY for too many headers, or INVALID - i if record i is
-- invalid; trailing bytes count as the record after the last.
-- A lead byte below 0x80 is a whole varint: nearly all are, or have two bytes. Positions above the
-- end are read in the padding only, because each length is checked before its bytes are skipped.
-- `survey` reads walked records once more, for topics that limit times, keys or sizes.
local ffi = require("ffi")
local band = require("bit").band
local bytes_of = ffi.typeof("const uint8_t*")

local DECODE, TOO_MANY, INVALID = -1, -2, -3
local TOO_LONG = 2 ^ 40

-- Return the unsigned varint of at most five bytes at that position, and the next position.
local function long_varint(p, at)
  local value, factor = 0, 1
  for i = 0, 4 do
    local byte = p[at + i]
    value = value + (byte % 128) * factor
    if byte < 128 then return value, at + i + 1 end
    factor = factor * 128
  end
  return TOO_LONG, at
end

-- Return the same; nearly all have one or two bytes. LuaJIT inlines a function without a loop.
local function varint(p, at)
  local value = p[at]
  if value < 128 then return value, at + 1 end
  local second = p[at + 1]
  if second < 128 then return value - 128 + second * 128, at + 2 end
  return long_varint(p, at)
end

-- Return the position after the timestamp of four to ten bytes, and its unsigned value.
local function long_timestamp(p, at)
  local value, factor = 0, 1
  for i = 0, 9 do
    local byte = p[at + i]
    value = value + (byte % 128) * factor
    if byte < 128 then return at + i + 1, value end
    factor = factor * 128
  end
  return -1, 0
end

-- Return whether the bytes from that position on are UTF-8, as Python decodes it.
local function is_utf8(p, at, last)
  while at < last do
    local lead = p[at]
    local more, low, high = 0, 0x80, 0xBF
    if lead >= 0xF0 then
      more = 3
      if lead == 0xF0 then low = 0x90 elseif lead == 0xF4 then high = 0x8F end
    elseif lead >= 0xE0 then
      more = 2
      if lead == 0xE0 then low = 0xA0 elseif lead == 0xED then high = 0x9F end
    elseif lead >= 0x80 then
      more = 1
    end
    if lead >= 0x80 and lead < 0xC2 or lead > 0xF4 or at + more >= last then return false end
    for i = 1, more do
      local byte = p[at + i]
      if byte < low or byte > high then return false end
      low, high = 0x80, 0xBF
    end
    at = at + 1 + more
  end
  return true
end

-- Return the position after the headers, or -1 if one is invalid.
local function headers(p, at, last, count)
  for _ = 1, count do
    if at >= last then return -1 end
    local length
    length, at = varint(p, at)
    if length % 2 == 1 or at + length / 2 >= last then return -1 end
    if not is_utf8(p, at, at + length / 2) then return -1 end
    at = at + length / 2
    length, at = varint(p, at)
    if length % 2 == 0 then at = at + length / 2 elseif length ~= 1 then return -1 end
    if at > last then return -1 end
  end
  return at
end

local function walk(address, size, count, most_headers)
  local p = ffi.cast(bytes_of, ffi.cast("uintptr_t", address))
  local at, highest, i = 0, 0, 0
  while i < count do
    if at >= size then return INVALID - i end
    local length
    length, at = varint(p, at)
    local last = at + length / 2
    if length % 2 == 1 or last > size or p[at] >= 128 then return INVALID - i end
    at = at + 1

    local delta = p[at]
    if delta < 128 then
      at = at + 1
    elseif p[at + 1] < 128 then
      delta, at = delta - 128 + p[at + 1] * 128, at + 2
    else
      at, delta = long_timestamp(p, at)
      if at < 0 then return INVALID - i end
      if delta >= 2 ^ 53 then return DECODE end
    end
    if delta > highest and delta % 2 == 0 then highest = delta end

    local offset
    offset, at = varint(p, at)
    if offset ~= i * 2 then return INVALID - i end

    length, at = varint(p, at)
    if band(length, 1) == 0 then at = at + length / 2 elseif length ~= 1 then return INVALID - i end
    if at >= last then return INVALID - i end

    length, at = varint(p, at)
    if band(length, 1) == 0 then at = at + length / 2 elseif length ~= 1 then return INVALID - i end
    if at >= last then return INVALID - i end

    length = p[at]
    at = at + 1
    if length ~= 0 then
      if length >= 128 then length, at = varint(p, at - 1) end
      -- A header has two bytes at least.
      if length % 2 == 1 or length > last - at then return INVALID - i end
      most_headers = most_headers - length / 2
      if most_headers < 0 then return TOO_MANY end
      at = headers(p, at, last, length / 2)
    end
    if at ~= last then return INVALID - i end
    at = last  -- Equal, but known earlier: the processor begins the next record meanwhile.
    i = i + 1
  end
  if at ~= size then return INVALID - count end
  return highest / 2
end

-- Return the lowest and highest timestamp delta of walked records, how many have no key, the most
-- bytes that one has, and their headers together; no bytes if a timestamp is no exact number.
local function survey(address, count)
  local p = ffi.cast(bytes_of, ffi.cast("uintptr_t", address))
  local at, lowest, highest, keyless, longest, named = 0, 2 ^ 53, -2 ^ 53, 0, 0, 0
  for _ = 1, count do
    local length, delta
    length, at = varint(p, at)
    local last = at + length / 2
    if length / 2 > longest then longest = length / 2 end
    at, delta = long_timestamp(p, at + 1)
    if delta >= 2 ^ 53 then return 0, 0, 0, 0, 0 end
    delta = delta % 2 == 0 and delta / 2 or -(delta + 1) / 2
    if delta < lowest then lowest = delta end
    if delta > highest then highest = delta end
    length, at = varint(p, at)
    length, at = varint(p, at)
    if length % 2 == 1 then keyless = keyless + 1 else at = at + length / 2 end
    length, at = varint(p, at)
    if length % 2 == 0 then at = at + length / 2 end
    length, at = varint(p, at)
    named = named + length / 2
    at = last
  end
  return lowest, highest, keyless, longest, named
end

return walk, survey
