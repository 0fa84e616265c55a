#!lua
-- Add the next entries of a worker's feed, as many as there is room for, each once.
-- No allow-oom: if memory is used up, they wait in the worker's files.
--
-- ARGV  feed of the worker, the number in it that they follow, most entries of the stream,
--       then for each: its number in the worker's feed, JSON
-- Reply the number of the last entry of this feed that is here, how many entries the stream has,
--       then the records of all consumers
-- If a server has lost its last second, or its reply was lost, the entries follow another one: then
-- nothing is added, and the worker goes on from there.
local feed, most = ARGV[1], tonumber(ARGV[3])
redis.call('HSETNX', SENT, feed, 0)  -- so that it is known that there is a change feed
local at, length = sent(feed), redis.call('XLEN', STREAM)
if at == tonumber(ARGV[2]) and #ARGV > 3 and length < most then
  local add = adder()
  for i = 4, math.min(#ARGV, 3 + 2 * (most - length)), 2 do
    add(ARGV[i + 1])
    at, length = ARGV[i], length + 1
  end
  redis.call('HSET', SENT, feed, at)
end
local reply = redis.call('HVALS', TAKEN)
table.insert(reply, 1, length)
table.insert(reply, 1, tonumber(at))
return reply
