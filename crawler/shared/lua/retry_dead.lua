#!lua flags=allow-oom
-- Queue the URLs of dead letters again.
--
-- ARGV  for each: number, host, front, body
-- Reply run, how many were there
local back = 0
for i = 1, #ARGV, 4 do
  local host, front = ARGV[i + 1], tonumber(ARGV[i + 2])
  if redis.call('HDEL', DEAD, ARGV[i]) == 1 then
    local it = load(host)
    redis.call('RPUSH', queue_key(front, host), ARGV[i + 3])
    count('waiting', 1)
    count('dead', -1)
    arrived(host, it, front)
    save(host, it)
    back = back + 1
  end
end
close_books()
return {run, back}
