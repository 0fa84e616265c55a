#!lua flags=allow-oom
-- Say whether a worker is to add the URLs of a list that is fetched whole (`-a only=LIST`), as a URL
-- that comes twice is fetched twice: one does while it and others that have the same list are alive,
-- and none while all of it was added by a run that has not fetched all.
--
-- KEYS[1] {<name>:workers}:alive   zset  live workers, by the time of their last announcement
-- KEYS[2] {<name>:workers}:chosen  hash  worker -> how far its list is, and the digest of that;
--   '=' and a digest -> number of a list that was added and is not over; '=last' -> the last number
-- ARGV  worker, digest, seconds after which a silent worker is dead, 'asks'
-- or    worker, digest, these seconds, 'added' (all of it, by this worker), its number
-- or    worker, '', these seconds, 'over' (nothing is left to fetch: all lists are)
-- Reply  'adding': this worker is to add it; 'waits': another one does; 'added': all of it was; and
--   its number, from 2; 0: nothing is left of it
local ALIVE, CHOSEN = KEYS[1], KEYS[2]
local me, digest, said = ARGV[1], ARGV[2], ARGV[4]
local silent_since = wall() - tonumber(ARGV[3])

local number = tonumber(redis.call('HGET', CHOSEN, '=' .. digest) or '0')
if said == 'added' then
  number = math.max(number, tonumber(ARGV[5]))
  redis.call('HSET', CHOSEN, '=' .. digest, number)
end
local state = number > 0 and 'added' or 'adding'

local entries = redis.call('HGETALL', CHOSEN)
for at = 1, #entries, 2 do
  local worker, how_far = entries[at], entries[at + 1]
  if worker:sub(1, 1) == '=' then
    if said == 'over' and worker ~= '=last' then redis.call('HDEL', CHOSEN, worker) end
  elseif tonumber(redis.call('ZSCORE', ALIVE, worker) or '-1') < silent_since then
    redis.call('HDEL', CHOSEN, worker)
  elseif worker ~= me and how_far == 'added ' .. digest then
    state = 'added'
  elseif worker ~= me and how_far == 'adding ' .. digest and state == 'adding' then
    state = 'waits'
  end
end
if said == 'over' then return { 'added', 0 } end
redis.call('HSET', CHOSEN, me, state .. ' ' .. digest)
if state == 'adding' then
  redis.call('HSETNX', CHOSEN, '=last', 1)
  number = redis.call('HINCRBY', CHOSEN, '=last', 1)
end
return { state, number }
