#!lua flags=allow-oom
-- Claim a shard that has no owner, or one whose lease is over, or whose claim this repeats.
-- A process that was started again claims the shards of the one before it at once.
--
-- KEYS  the root of the shard
-- ARGV  token, ms of the lease, 1 if a shard that is not there is to be begun; beginnings of the
--       tokens of owners that are certainly dead
-- Reply 'ok', number of its last batch, totals, whether a restart of the server may have lost
--       some, whether it is being filled again, ms since its last lease ended, run of the server,
--       whether it was taken from an owner that is certainly dead
--       | 'held', for how many ms | 'none'
local meta = redis.call('HMGET', KEYS[1], 'owner', 'until', 'seq', 'totals', 'lost', 'filling', 'run')
local owner, held, seq = meta[1] or '', tonumber(meta[2] or 0) - now_ms(), meta[3]
if not seq and ARGV[3] ~= '1' then return {'none'} end
local is_dead = false
for i = 4, #ARGV do is_dead = is_dead or string.sub(owner, 1, #ARGV[i]) == ARGV[i] end
if held > 0 and owner ~= '' and owner ~= ARGV[1] and not is_dead then return {'held', held} end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'until', now_ms() + ARGV[2], 'lease', ARGV[2],
           'seq', seq or 0)
return {'ok', tonumber(seq or 0), meta[4] or '', meta[5] and 1 or 0, meta[6] and 1 or 0,
        math.max(0, -held), meta[7] or '', is_dead and 1 or 0}
