#!lua flags=allow-oom
-- Renew all leases of a session.
--
-- ARGV  session, lease_s
-- Reply run, 1; or 0: the session has none, or has ended, and its leases come back; then how many
--       leases it has: one that never reached the worker would be renewed for ever
local alive = held(ARGV[1])
if alive then redis.call('ZADD', SESSIONS, now + tonumber(ARGV[2]), ARGV[1]) end
return {run, alive and 1 or 0, redis.call('HLEN', leases_key(ARGV[1]))}
