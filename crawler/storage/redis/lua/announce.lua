#!lua flags=allow-oom
-- A worker says that it is there, also where memory is used up: what waits on its disk counts.
--
-- KEYS[1] <name>:workers  hash  worker -> what it last said
-- ARGV  name, what it says, [what stands there now, or it is not written; empty: nothing]
-- Reply whether it was written
if ARGV[3] and (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[3] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
