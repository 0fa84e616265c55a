#!lua flags=no-writes,allow-oom
-- ARGV  session
-- Reply run, then the number of each lease it has
local reply = {run}
for _, lease in ipairs(redis.call('HKEYS', leases_key(ARGV[1]))) do reply[#reply + 1] = lease end
return reply
