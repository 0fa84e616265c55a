#!lua flags=no-writes,allow-oom
-- Find the claim on the content that a near fingerprint leads to.
--
-- ARGV  mark: the first eight bytes of a digest and its last four
-- Reply run, the claim, its archive file; '' and '': there is none
local mark = ARGV[1]
for _, claim in ipairs(redis.call('LRANGE', claims_key(claim_bucket(mark, claim_buckets())), 0, -1)) do
  local digest = digest_in(claim)
  if string.sub(digest, 1, 8) .. string.sub(digest, -4) == mark then
    local file = redis.call('HGET', FILES, '<' .. struct.unpack('<I3', claim))
    return {run, string.sub(claim, 4), file or ''}
  end
end
return {run, '', ''}
