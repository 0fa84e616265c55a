#!lua flags=allow-oom
-- Note whether links wait on the disk of a worker: while any do, the crawl is not over.
--
-- ARGV  worker, 1 or 0
-- Reply run
-- The note may be in any shard, because all are looked at before the crawl ends.
redis.call(ARGV[2] == '1' and 'SADD' or 'SREM', OUTBOXES, ARGV[1])
return {run}
