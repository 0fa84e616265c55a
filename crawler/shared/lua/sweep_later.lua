#!lua flags=allow-oom
-- Decide about URLs with a date, for an act of the operator.
--
-- ARGV  for each: its entry; what becomes of it: 'd' and its dead letter | 'f' and the front that it
--       moves to | 'x' (it is forgotten)
-- Reply run, how many were still there
local touched = 0
for i = 1, #ARGV, 2 do
  local entry = ARGV[i]
  local kind, rest = string.sub(ARGV[i + 1], 1, 1), string.sub(ARGV[i + 1], 2)
  local at = redis.call('ZSCORE', LATER, entry)
  if at then
    touched = touched + 1
    redis.call('ZREM', LATER, entry)
    if kind == 'f' then
      local moved = string.sub(entry, 1, 6) .. string.char(tonumber(rest)) .. string.sub(entry, 8)
      redis.call('ZADD', LATER, at, moved)
    else
      add_to_total('later', -1)
    end
    if kind == 'd' then
      redis.call('HSET', DEAD, to_text(next_id()), rest)
      add_to_total('dead', 1)
    end
  end
end
if touched > 0 then write_totals() end
return {run, touched}
