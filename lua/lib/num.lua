--- Numbers as text. `..` would write 1e+14 for a large one; nothing else may turn one into text.
local M = {}

--- The digits of an integer below 2^53.
function M.text(n)
  return string.format("%.0f", n)
end

return M
