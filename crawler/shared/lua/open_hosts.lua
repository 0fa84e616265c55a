#!lua
-- Add hosts that pushed seeds open, for all workers.
--
-- KEYS[1] <name>:opened  zset  host, by the order in which they came
-- ARGV  hosts
-- Reply the highest of their scores: a worker that has read up to it knows them all
-- A score is the time in microseconds and never given twice: after a server has lost its last second,
-- new hosts are still behind all that any worker may have read.
local OPENED = KEYS[1]
local mark, last = 0, 0
local latest = redis.call('ZRANGE', OPENED, -1, -1, 'WITHSCORES')
if latest[2] then last = tonumber(latest[2]) end
local now = math.floor(wall() * 1000000)
for _, host in ipairs(ARGV) do
  local score = redis.call('ZSCORE', OPENED, host)
  if not score then
    last = math.max(last + 1, now)
    score = last
    redis.call('ZADD', OPENED, string.format('%.0f', score), host)
  end
  mark = math.max(mark, tonumber(score))
end
return string.format('%.0f', mark)
