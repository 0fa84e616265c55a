#!lua flags=allow-oom
-- Write the next batch of a shard, if its owner is still the one that claimed it, and renew its
-- lease.
--
-- KEYS  the root of the shard; its inbox; what the batch touches
-- ARGV  token, run of the server that the owner knows, ms of the lease, number of the batch before,
--       number of this one, totals ('': as they are); then for each command: its name,
--       which of KEYS, how many arguments, and these
-- Reply 'ok', number, whether a restart of the server may have lost some, entries in the inbox
--       | 'gap', number of the last batch | 'restarted', run, the same number | 'taken' | 'none'
local owner, seq, lost, run = unpack(redis.call('HMGET', KEYS[1], 'owner', 'seq', 'lost', 'run'))
if not seq then return {'none'} end
if owner ~= ARGV[1] then return {'taken'} end
-- After a restart nothing is written before the owner knows of each shard what it lacks.
if (run or '') ~= ARGV[2] then return {'restarted', run, tonumber(seq)} end
if seq ~= ARGV[4] then return {'gap', tonumber(seq)} end
local at = 7
while at <= #ARGV do
  local last = at + 2 + ARGV[at + 2]
  redis.call(ARGV[at], KEYS[tonumber(ARGV[at + 1])], unpack(ARGV, at + 3, last))
  at = last + 1
end
redis.call('HSET', KEYS[1], 'seq', ARGV[5], 'until', now_ms() + ARGV[3])
if ARGV[6] ~= '' then redis.call('HSET', KEYS[1], 'totals', ARGV[6]) end
return {'ok', tonumber(ARGV[5]), lost and 1 or 0, redis.call('HLEN', KEYS[2])}
