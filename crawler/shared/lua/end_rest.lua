#!lua flags=allow-oom
-- End the rests of hosts that rested for a pause, after a lease under which no request was sent.
--
-- ARGV  for each: host, seconds in which its rest ends: one that ends later has another reason, and stays
-- Reply run
local SLACK = 1  -- more than the time that the call may have taken
for i = 1, #ARGV, 2 do
  local host = ARGV[i]
  local record = load_host(host)
  if record.place ~= LEASED and record.rest > now and record.rest <= now + tonumber(ARGV[i + 1]) + SLACK then
    record.rest = now
    if record.place == RESTS then
      redis.call('ZREM', RESTING, host)
      file_or_rest(host, record, true)
    end
    save_host(host, record)
  end
end
write_totals()
return {run}
