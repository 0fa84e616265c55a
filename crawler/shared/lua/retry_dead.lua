#!lua flags=allow-oom
-- Queue the URLs of dead letters again.
--
-- ARGV  for each: number, host, front, packed URL
-- Reply run, how many were there
local back = 0
for i = 1, #ARGV, 4 do
  local host, front = ARGV[i + 1], tonumber(ARGV[i + 2])
  if redis.call('HDEL', DEAD, ARGV[i]) == 1 then
    local record = load_host(host)
    redis.call('RPUSH', queue_key(front, host), ARGV[i + 3])
    add_waiting(record, front, 1)
    add_to_total('dead', -1)
    note_queued(host, record, front)
    save_host(host, record)
    back = back + 1
  end
end
write_totals()
return {run, back}
