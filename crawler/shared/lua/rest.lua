#!lua flags=allow-oom
-- Let hosts rest at least so long, even without a lease: a worker sends this for hosts that it
-- contacted after their server lost its last second, and when an answer with trouble has begun. It
-- can only make a rest longer.
--
-- ARGV  longest rest; then for each: host, age_s (since its fetch ended), seconds, pace with what its
--       host asked for
-- Reply run
local max_rest = tonumber(ARGV[1])
for i = 2, #ARGV, 4 do
  local host, age = ARGV[i], tonumber(ARGV[i + 1])
  local rest = now - age + math.min(math.max(tonumber(ARGV[i + 2]), 0), max_rest)
  local record = load_host(host)
  local pace = take_pace(record, ARGV[i + 3])
  if rest > record.rest then
    record.rest, record.pace = rest, pace
    if record.place == RESTS then redis.call('ZADD', RESTING, rest, host) end
  end
  save_host(host, record)
end
write_totals()
return {run}
