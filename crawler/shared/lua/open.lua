#!lua flags=allow-oom
-- Open a shard. A client calls this if the server does not know our scripts: it is new, or was
-- restarted and may have lost its last second.
--
-- ARGV  run_id of the server, seconds without leases after a restart, lease_s, schema, for how many
--       seconds the caller knows this shard
-- Reply run
local run_id, quiet_s, lease_s, schema = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local known_s = tonumber(ARGV[5] or 0)
-- Older writes are on the disk of a server that has one, however slow it is.
local FSYNC_LAG_S = 10

local types = {[TOTALS] = 'hash', [HOSTS] = 'hash', [RESTING] = 'zset', [LATER] = 'zset',
               [SESSIONS] = 'zset', [DEAD] = 'hash', [DOMAINS] = 'hash', [FILES] = 'hash', [OUTBOXES] = 'set',
               [REFUSED] = 'hash',
               [claims_key(0)] = 'list', [seen_key(0)] = 'set'}
for front = 0, FRONTS - 1 do
  for standing = 0, STANDINGS - 1 do types[front_key(front, standing)] = 'list' end
end
local known = redis.call('HGET', TOTALS, 'schema')
for name, wanted in pairs(types) do
  local found = redis.call('TYPE', name).ok
  if found ~= 'none' and (found ~= wanted or not known) then
    return redis.error_reply('FOREIGN the key ' .. name .. ' is there already, a ' .. found ..
      ' that no crawl of ours has made. Choose another CRAWLER_FRONTIER_NAME, or remove it')
  end
end
if known and known ~= schema then
  return redis.error_reply('SCHEMA the frontier at ' .. root .. ' has schema ' .. known ..
    ', and this version reads ' .. schema .. ': finish the crawl with the version that began it')
end

local last_run = redis.call('HGET', TOTALS, 'run')
if not last_run and known_s > FSYNC_LAG_S then
  return redis.error_reply('GONE the server came back without ' .. root ..
    '. Look whether its appendonly is on. Put its data back, or begin another crawl')
end
-- If the shard is empty but known to the client, it was begun a moment ago and is lost completely.
local is_other_run = last_run and last_run ~= run_id or known_s > 0
if not last_run then redis.call('HSET', TOTALS, 'schema', schema, 'run', run_id) end
if is_other_run and last_run ~= run_id then
  -- Fetches under lost leases must end before their hosts are leased again; no number of a lost
  -- lease may be used again; and the leases of every session are prolonged so that it can return.
  redis.call('HSET', TOTALS, 'run', run_id, 'restarted', now, 'quiet_until', now + quiet_s,
    'next', next_number + 1048576)
  for _, session in ipairs(redis.call('ZRANGEBYSCORE', SESSIONS, '-inf', now + lease_s)) do
    redis.call('ZADD', SESSIONS, 'GT', now + lease_s, session)
  end
  next_number, first_number = next_number + 1048576, next_number + 1048576
  write_totals()
end
return {string.sub(run_id, 1, 8)}
