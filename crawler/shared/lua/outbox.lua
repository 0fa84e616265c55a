#!lua flags=allow-oom
-- Links wait on the disk of a worker, or none do any more: as long as any do, the crawl is not over.
--
-- ARGV  worker, 1 or 0
-- Reply run
-- Noted in any shard: before the crawl ends, all of them are looked at.
redis.call(ARGV[2] == '1' and 'SADD' or 'SREM', OUTBOXES, ARGV[1])
return {run}
