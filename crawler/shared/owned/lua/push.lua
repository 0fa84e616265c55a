#!lua
-- Put entries into the inbox of a shard: it may have an owner, none, or never have been begun.
-- No allow-oom: if memory is used up, the script is refused before it begins.
--
-- KEYS  the root of the shard; its inbox
-- ARGV  run of the server that the sender knows; then for each entry: its name and its bytes
-- Reply 'ok' | 'restarted', run
local run = redis.call('HGET', KEYS[1], 'run') or ''
-- After a restart the sender sends first what the server may have lost.
if run ~= ARGV[1] then return {'restarted', run} end
redis.call('HSET', KEYS[2], unpack(ARGV, 2))
redis.call('HINCRBY', KEYS[1], 'inbox', 1)
return {'ok'}
