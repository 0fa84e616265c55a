#!lua flags=allow-oom
-- A worker says that it is there, also where memory is used up: what waits on its disk counts.
--
-- KEYS[1] <name>:workers  hash  worker -> what it last said
-- ARGV  name, what it says
-- Reply none
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
