#!lua flags=allow-oom
-- Release leases at the end of their fetches: their hosts may be contacted again after their rests.
--
-- ARGV  session, longest rest; then for each: lease, age_s (since its fetch ended), seconds, pace
--       with what its host asked for
-- Reply run, then for each 1, or 0: not held
local session, max_rest = ARGV[1], tonumber(ARGV[2])
local leases = leases_key(session)
local reply = {run}
local is_live = is_session_live(session)

local function release(lease, age, seconds, pace)
  local packed = is_live and redis.call('HGET', leases, lease)
  if not packed then return 0 end
  local taken, released, front, host, packed_url = unpack_lease(packed)
  if released == 1 then return 0 end
  local record = load_host(host)
  local rest = math.max(now - age, taken) + math.min(math.max(seconds, 0), max_rest)
  record.rest = math.max(record.rest, rest)
  record.pace = take_pace(record, pace)
  file_or_rest(host, record)
  save_host(host, record)
  redis.call('HSET', leases, lease, pack_lease(taken, 1, front, host, packed_url))
  return 1
end

for i = 3, #ARGV, 4 do
  reply[#reply + 1] = release(ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 3])
end
write_totals()
return reply
