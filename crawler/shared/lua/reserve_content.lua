#!lua flags=allow-oom
-- Find the claim on a content. If there is none, reserve the content for `owner` for a while.
--
-- ARGV  digest, owner (a lease of a session), milliseconds
-- Reply run, 'claimed', the claim, its archive file; or 'yours'; or 'wait': another has it reserved
local digest, owner = ARGV[1], ARGV[2]
local claim = claim_on(digest)
if claim then
  local file = redis.call('HGET', FILES, '<' .. struct.unpack('<I3', claim))
  return {run, 'claimed', string.sub(claim, 4), file or ''}
end
local reservation = reservation_key(digest)
local other = redis.call('GET', reservation)
if other and other ~= owner then return {run, 'wait'} end
redis.call('SET', reservation, owner, 'PX', tonumber(ARGV[3]))
return {run, 'yours'}
