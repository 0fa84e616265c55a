#!lua flags=allow-oom
-- Write the next batch of a shard, if its owner is still the one that claimed it, and renew its
-- lease.
--
-- KEYS  the root of the shard; what the batch touches
-- ARGV  token, ms of the lease, number of the batch before, number of this one, totals ('': as they
--       are); then for each command: its name, which of KEYS, how many arguments, and these
-- Reply 'ok', number, whether a restart of the server may have lost some | 'gap', number of the
--       last batch | 'taken' | 'none'
local owner, seq, lost = unpack(redis.call('HMGET', KEYS[1], 'owner', 'seq', 'lost'))
if not seq then return {'none'} end
if owner ~= ARGV[1] then return {'taken'} end
if seq ~= ARGV[3] then return {'gap', tonumber(seq)} end
local at = 6
while at <= #ARGV do
  local last = at + 2 + ARGV[at + 2]
  redis.call(ARGV[at], KEYS[tonumber(ARGV[at + 1])], unpack(ARGV, at + 3, last))
  at = last + 1
end
redis.call('HSET', KEYS[1], 'seq', ARGV[4], 'until', now_ms() + ARGV[2])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], 'totals', ARGV[5]) end
return {'ok', tonumber(ARGV[4]), lost and 1 or 0}
