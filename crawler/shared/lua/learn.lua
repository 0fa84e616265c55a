#!lua flags=allow-oom
-- A worker has learned what a robots.txt says, or that nobody can know it.
--
-- ARGV  authority, milliseconds that it holds, record
-- Reply run
redis.call('SET', robots_key(ARGV[1]), ARGV[3], 'PX', tonumber(ARGV[2]))
return {run}
