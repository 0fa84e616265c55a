#!lua flags=no-writes,allow-oom
-- List the open leases of a session.
-- ARGV  session
-- Reply run, then the number of each lease it has; none if it has ended, though its leases may not
--       be queued again yet
local reply = {run}
if not is_session_live(ARGV[1]) then return reply end
for _, lease in ipairs(redis.call('HKEYS', leases_key(ARGV[1]))) do reply[#reply + 1] = lease end
return reply
