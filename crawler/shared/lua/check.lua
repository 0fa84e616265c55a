#!lua flags=no-writes,allow-oom
-- Check whether anything is left to fetch in a shard. This reads the queues, because with a counter that drifted a crawl would end early, or never.
--
-- Reply run, 1 if a URL waits, has a later date or is leased, the totals as HGETALL has them, the
--       workers that have links on their own disks
-- A front queue may hold entries that are stale; the next leases take them out.
local function is_anything_left()
  for front = 0, FRONTS - 1 do
    for standing = 0, STANDINGS - 1 do
      if redis.call('LLEN', front_key(front, standing)) > 0 then return 1 end
    end
  end
  if redis.call('ZCARD', RESTING) > 0 or redis.call('ZCARD', LATER) > 0 then return 1 end
  -- A session without leases is taken out with its last one; a few may stand there after a restart.
  local MAX_STALE_SESSIONS = 100
  local sessions = redis.call('ZRANGE', SESSIONS, 0, MAX_STALE_SESSIONS)
  if #sessions > MAX_STALE_SESSIONS then return 1 end
  for _, session in ipairs(sessions) do
    if redis.call('EXISTS', leases_key(session)) == 1 then return 1 end
  end
  return 0
end

return {run, is_anything_left(), redis.call('HGETALL', TOTALS), redis.call('SMEMBERS', OUTBOXES)}
