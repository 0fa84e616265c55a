#!lua flags=allow-oom
-- Note at which run of the server a shard is. A client calls this before any other script: after a
-- restart of the server, which may have lost its last second, each shard has that noted before its
-- next batch or claim.
--
-- KEYS  the root of the shard
-- ARGV  run_id of the server
local last = redis.call('HGET', KEYS[1], 'run')
if last ~= ARGV[1] then redis.call('HSET', KEYS[1], 'run', ARGV[1]) end
if last and last ~= ARGV[1] then redis.call('HSET', KEYS[1], 'lost', 1) end
return redis.status_reply('OK')
