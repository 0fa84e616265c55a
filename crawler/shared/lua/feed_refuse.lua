#!lua flags=allow-oom
-- Refuse items that cannot be used. The last thousand are kept.
--
-- ARGV  for each: id, entry
-- Reply how many were still held
local held = 0
for i = 1, #ARGV, 2 do
  if redis.call('HDEL', TAKEN, ARGV[i]) == 1 then
    note_refused(ARGV[i + 1])
    held = held + 1
  end
end
return held
