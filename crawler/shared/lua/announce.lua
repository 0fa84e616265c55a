#!lua flags=allow-oom
-- Announce a worker, even if memory is used up. What it must know of the others is counted here: if
-- each of N workers read all records, N x N of them would be sent each second.
--
-- KEYS[1] <name>:workers               hash  worker -> its last record
-- KEYS[2] {<name>:workers}:alive       zset  live workers, by the time of their last announcement
-- KEYS[3] {<name>:workers}:starting    set   those of them that have not added their seeds yet
-- KEYS[4] {<name>:workers}:read       zset  those of them by how far they have read <name>:opened
-- ARGV  name, record (empty: it leaves), state, mark, seconds after which a silent worker is dead;
--       [the record that must be stored now, or nothing is written; empty: none]
-- Reply whether it was written, how many take part, how many of them are starting, the lowest mark,
--       how many have a record: those that take part, and those that did not leave in good order
local WORKERS, ALIVE, STARTING, READ = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name, worker_record, state = ARGV[1], ARGV[2], ARGV[3]
local now, MOST_DEAD = wall(), 100

local function remove_worker(worker)
  redis.call('ZREM', ALIVE, worker)
  redis.call('SREM', STARTING, worker)
  redis.call('ZREM', READ, worker)
end

if ARGV[6] and (redis.call('HGET', WORKERS, name) or '') ~= ARGV[6] then return {0, 0, 0, '0', 0} end
if worker_record == '' then redis.call('HDEL', WORKERS, name) else redis.call('HSET', WORKERS, name, worker_record) end
if worker_record == '' or state == 'stopping' then
  remove_worker(name)
else
  redis.call('ZADD', ALIVE, string.format('%.3f', now), name)
  redis.call(state == 'starting' and 'SADD' or 'SREM', STARTING, name)
  redis.call('ZADD', READ, ARGV[4], name)
end
local silent_since = string.format('%.3f', now - tonumber(ARGV[5]))
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', ALIVE, '-inf', silent_since, 'LIMIT', 0, MOST_DEAD)) do
  remove_worker(dead)
end
local lowest = redis.call('ZRANGE', READ, 0, 0, 'WITHSCORES')[2] or '0'
return {1, redis.call('ZCARD', ALIVE), redis.call('SCARD', STARTING), lowest, redis.call('HLEN', WORKERS)}
