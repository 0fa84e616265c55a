#!lua flags=allow-oom
-- Remove URLs of a host or domain that are over its present budget from the ends of the host's
-- queues, the worst level first, and keep them as refused.
--
-- ARGV  session, lease of the host, registered domain, how many at most, why
-- Reply run, 1 or 0: not held, then for each: front, packed URL
local session, lease, domain, most, why = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local packed = is_session_live(session) and redis.call('HGET', leases_key(session), lease)
if not packed then return {run, 0} end
local _, released, _, host = unpack_lease(packed)
local record = load_host(host)
local reply = {run, 1}
local taken = 0
local FREE = 8  -- of the last URLs of a queue that may be of no budget
for front = FRONTS - 1, URGENT + 1, -1 do
  local queue = queue_key(front, host)
  local found = most > taken and redis.call('LRANGE', queue, taken - most - FREE, -1) or {}
  if #found > 0 then
    redis.call('LTRIM', queue, 0, -#found - 1)
    local stays, taken_before = {}, taken
    for i = #found, 1, -1 do
      if taken == most or is_free(found[i]) then
        stays[#stays + 1] = found[i]
      else
        refuse(record, domain, host, front, why, found[i])
        reply[#reply + 1], reply[#reply + 2] = front, found[i]
        taken = taken + 1
      end
    end
    for i = #stays, 1, -1 do redis.call('RPUSH', queue, stays[i]) end
    add_waiting(record, front, taken_before - taken)
    if redis.call('EXISTS', queue) == 0 then
      record.fronts = bit.band(record.fronts, bit.bnot(bit.lshift(1, front)))
    end
  end
end
if taken > 0 then
  save_host(host, record)
  write_totals()
end
return reply
