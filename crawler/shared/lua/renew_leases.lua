#!lua flags=allow-oom
-- Renew all leases of a session.
--
-- ARGV  session, lease_s
-- Reply run, 1 if some of its leases have ended since that was last reported, and how many it has:
--       one whose reply was lost would be renewed for ever
local session = ARGV[1]
local lost = take_expiry_notice(session)
if is_session_live(session) then redis.call('ZADD', SESSIONS, now + tonumber(ARGV[2]), session) end
return {run, lost and 1 or 0, redis.call('HLEN', leases_key(session))}
