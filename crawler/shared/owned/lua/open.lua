#!lua flags=allow-oom
-- Note at which run of the server a shard is. A client calls this before any other script: after a
-- restart of the server, which may have lost its last second, each shard has that noted before its
-- next batch or claim. It may have lost renewals of the lease too: its owner gets a whole one, in
-- which it sends again what was lost, before another worker may claim the shard.
--
-- KEYS  the root of the shard
-- ARGV  run_id of the server
local last, lease = unpack(redis.call('HMGET', KEYS[1], 'run', 'lease'))
if last ~= ARGV[1] then redis.call('HSET', KEYS[1], 'run', ARGV[1]) end
if last and last ~= ARGV[1] then
  redis.call('HSET', KEYS[1], 'lost', 1, 'restarted', now_ms())
  if lease then redis.call('HSET', KEYS[1], 'until', now_ms() + lease) end
end
return redis.status_reply('OK')
