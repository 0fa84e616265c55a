#!lua flags=allow-oom
-- Write counters that were counted again, unless the shard has changed since.
--
-- ARGV  how many fields must be as they were; for each of them: field, value ('': not there); then
--       for each counter: field, value
-- Reply run, 1 if they were written
local conditions = tonumber(ARGV[1])
local at = 2
for _ = 1, conditions do
  if (redis.call('HGET', TOTALS, ARGV[at]) or '') ~= ARGV[at + 1] then return {run, 0} end
  at = at + 2
end
for i = at, #ARGV, 2 do redis.call('HSET', TOTALS, ARGV[i], ARGV[i + 1]) end
return {run, 1}
