#!lua flags=allow-oom
-- Renew the lease of taken items.
--
-- ARGV  ids
-- Reply for each 1, or 0: it was given to another
local reply = {}
for i, id in ipairs(ARGV) do
  local value = redis.call('HGET', TAKEN, id)
  if value then
    local _, item = unstamped(value)
    redis.call('HSET', TAKEN, id, stamped(item))
  end
  reply[i] = value and 1 or 0
end
return reply
