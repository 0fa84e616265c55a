#!lua flags=allow-oom
-- Give a shard up, if its owner is still the one that claimed it.
--
-- KEYS  the root of the shard
-- ARGV  token
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return {'taken'} end
redis.call('HSET', KEYS[1], 'owner', '')
return {'ok'}
