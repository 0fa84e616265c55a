#!lua flags=allow-oom
-- Remove a consumer, and what all others have taken.
--
-- ARGV  name
-- Reply 1, or 0: there was none
local found = redis.call('HDEL', TAKEN, ARGV[1])
trim()
return found
