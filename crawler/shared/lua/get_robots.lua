#!lua flags=no-writes,allow-oom
-- Read the robots.txt records of authorities.
--
-- ARGV  authorities
-- Reply run, then for each its record, and the milliseconds that it still holds; '' and 0: none
local reply = {run}
for _, authority in ipairs(ARGV) do
  local key = robots_key(authority)
  local record = redis.call('GET', key)
  reply[#reply + 1] = record or ''
  reply[#reply + 1] = record and redis.call('PTTL', key) or 0
end
return reply
