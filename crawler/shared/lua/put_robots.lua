#!lua flags=allow-oom
-- Store a worker's robots.txt record, which may be that it cannot be fetched.
--
-- ARGV  authority, milliseconds that it holds, record
-- Reply run
redis.call('SET', robots_key(ARGV[1]), ARGV[3], 'PX', tonumber(ARGV[2]))
return {run}
