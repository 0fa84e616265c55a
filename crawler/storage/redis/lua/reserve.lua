#!lua flags=allow-oom
-- Who has this content already? If nobody, `owner` may claim it and has it reserved for a while.
--
-- ARGV  digest, owner (a lease of a session), milliseconds
-- Reply run, 'claimed' and the claim; or 'yours'; or 'wait': another has it reserved
local digest, owner = ARGV[1], ARGV[2]
local claim = redis.call('HGET', CLAIMS, digest)
if claim then return {run, 'claimed', claim} end
local reservation = reservation_key(digest)
local other = redis.call('GET', reservation)
if other and other ~= owner then return {run, 'wait'} end
redis.call('SET', reservation, owner, 'PX', tonumber(ARGV[3]))
return {run, 'yours'}
