--- Find the end of a stream.
local entry_id = require("lib.entry_id")
local fields = require("lib.fields")

local M = {}

--- Return the lowest offset above every entry ever in the stream, removed or not; 0 for none.
function M.offset_after(mode, bits, stream)
  local info = redis.pcall("XINFO", "STREAM", stream)
  local id = not info.err and fields.get(info, "last-generated-id")
  return id and id ~= "0-0" and entry_id.offset_after(mode, bits, id) or 0
end

--- Return the log end offset, given `next` of the log's state: foreign entries in layout `record`
--- raise it.
function M.log_end(format, mode, bits, stream, next_offset)
  local tail = format == "record" and redis.call("XREVRANGE", stream, "+", "-", "COUNT", 1)[1]
  return tail and math.max(next_offset, entry_id.offset_after(mode, bits, tail[1])) or next_offset
end

return M
