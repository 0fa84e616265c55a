#!lua flags=allow-oom
-- Forget dead letters, or URLs that a rule refused, for a deletion request.
--
-- ARGV  dead | refused, then their numbers
-- Reply run, how many were there
local gone = 0
for i = 2, #ARGV do
  gone = gone + redis.call('HDEL', ARGV[1] == 'dead' and DEAD or REFUSED, ARGV[i])
end
if gone > 0 then
  add_to_total(ARGV[1], -gone)
  write_totals()
end
return {run, gone}
