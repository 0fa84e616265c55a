#!lua
-- Keep the addresses that name servers gave for names, so that other workers need not ask.
--
-- ARGV  the most names of this shard, ms until all are dropped that nothing is added to, then for
--       each: name, ms for which its addresses count, the addresses with spaces between
-- Reply run
-- A field of a hash does not expire by itself in Redis 7.0. So each new name looks at LOOKED_AT
-- others and removes those that have expired: then one in LOOKED_AT of all has, at most. If there
-- are too many names, those that are looked at go.
local LOOKED_AT = 4
local now, added = now_ms(), 0
for i = 3, #ARGV, 3 do
  local value = string.format('%.0f %s', now + ARGV[i + 1], ARGV[i + 2])
  added = added + redis.call('HSET', NAMES, ARGV[i], value)
end
redis.call('PEXPIRE', NAMES, ARGV[2])
local surplus = redis.call('HLEN', NAMES) - ARGV[1]
local others = redis.call('HRANDFIELD', NAMES, LOOKED_AT * added, 'WITHVALUES')
for i = 1, #others, 2 do
  local until_ms = tonumber(string.match(others[i + 1], '^%d+'))
  if surplus > 0 or not until_ms or until_ms <= now then
    redis.call('HDEL', NAMES, others[i])
    surplus = surplus - 1
  end
end
return {run}
