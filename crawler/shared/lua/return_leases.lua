#!lua flags=allow-oom
-- Return up to `slice` leases of a dead session to the frontier.
--
-- ARGV  session, rules, slice; 1 if its archive was looked through, and then each lease that has a
--       record there
-- Reply run, how many were returned; 0: it has none
local leases = leases_key(ARGV[1])
if redis.call('EXISTS', leases) == 0 then
  redis.call('ZREM', SESSIONS, ARGV[1])
  redis.call('DEL', ended_key(ARGV[1]))  -- no worker asks for it any more
  return {run, 0}
end
-- Filed before all other sessions that have ended, so that `expire_leases` begins with it.
redis.call('ZADD', SESSIONS, '-inf', ARGV[1])
local archived = {}
for i = 5, #ARGV do archived[ARGV[i]] = true end
local known = ARGV[4] == '1' and ARGV[1]
local back = expire_leases(rules_of(ARGV[2]), tonumber(ARGV[3]), known, archived)
write_totals()
return {run, back}
