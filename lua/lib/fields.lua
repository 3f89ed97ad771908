--- Flat lists of names and values, as Redis returns the fields of an entry and the rows of XINFO.
local M = {}

--- Return the first value of that name, nil without one.
function M.get(list, name)
  for i = 1, #list, 2 do
    if list[i] == name then
      return list[i + 1]
    end
  end
  return nil
end

return M
