#!lua flags=allow-oom
-- Pages are durable, and own their content from now on; or they came to nothing, and it is free.
--
-- ARGV  for each: digest, owner, claim ('' where it came to nothing)
-- Reply run
-- The first claim stands: two pages that claim one content are both stored, and say the same.
for i = 1, #ARGV, 3 do
  local digest, owner, claim = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if claim ~= '' then redis.call('HSETNX', CLAIMS, digest, claim) end
  local reservation = reservation_key(digest)
  if redis.call('GET', reservation) == owner then redis.call('DEL', reservation) end
end
return {run}
