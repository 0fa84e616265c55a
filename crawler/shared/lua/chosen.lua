#!lua flags=allow-oom
-- Say whether a worker is to add the URLs of a list that is fetched whole (`-a only=LIST`): one does
-- while it and others that have the same list are alive, as a URL that comes twice is fetched twice.
--
-- KEYS[1] {<name>:workers}:alive   zset  live workers, by the time of their last announcement
-- KEYS[2] {<name>:workers}:chosen  hash  worker -> how far its list is, and the digest of that
-- ARGV  worker, digest, seconds after which a silent worker is dead, 1 if it has added all of it
-- Reply 'adding': this worker is to add it; 'waits': another one does; 'added': all of it was
local ALIVE, CHOSEN = KEYS[1], KEYS[2]
local me, digest = ARGV[1], ARGV[2]
local silent_since = wall() - tonumber(ARGV[3])
local state = ARGV[4] == '1' and 'added' or 'adding'

local entries, same = redis.call('HGETALL', CHOSEN), {}
for at = 1, #entries, 2 do
  local worker, how_far = entries[at], entries[at + 1]
  local seen_at = tonumber(redis.call('ZSCORE', ALIVE, worker) or '-1')
  if seen_at < silent_since then
    redis.call('HDEL', CHOSEN, worker)
  elseif worker ~= me and how_far == 'added ' .. digest then
    state = 'added'
  elseif worker ~= me and how_far == 'adding ' .. digest and state == 'adding' then
    state = 'waits'
  end
  if worker ~= me and how_far == 'waits ' .. digest then same[#same + 1] = worker end
end
redis.call('HSET', CHOSEN, me, state .. ' ' .. digest)
if state == 'added' then
  for _, worker in ipairs(same) do
    if redis.call('HEXISTS', CHOSEN, worker) == 1 then redis.call('HSET', CHOSEN, worker, 'added ' .. digest) end
  end
end
return state
