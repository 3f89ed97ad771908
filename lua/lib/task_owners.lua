--- The owners of a streams group's tasks (KIP-1071): fields of its hash of partition owners.
---
--- An assignment holds "a<task>" for an active task, "b<task>" for a standby task and "c<task>" for
--- a warm-up task; a task is "<subtopology id in hex digits>:<partition>". So it is encoded as
--- partitions are (lib.consumer_group). An active task has one owner in the group: field "a<task>".
--- A process has a task once, whatever its kind: field "<task> <process id>".
local M = {}

--- Return the fields of these items of a member's assignment.
function M.fields(list, process)
  local found = {}
  for _, item in ipairs(list) do
    if string.sub(item, 1, 1) == "a" then
      found[#found + 1] = item
    end
    found[#found + 1] = string.sub(item, 2) .. " " .. process
  end
  return found
end

--- Return those items whose fields are all in the set `free`.
function M.filter(list, process, free)
  local found = {}
  for _, item in ipairs(list) do
    local is_free = true
    for _, field in ipairs(M.fields({ item }, process)) do
      is_free = is_free and free[field] == true
    end
    if is_free then
      found[#found + 1] = item
    end
  end
  return found
end

return M
