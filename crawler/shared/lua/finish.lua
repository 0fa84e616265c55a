#!lua flags=allow-oom
-- Finish leases: apply the verdicts of URLs whose pages are durable.
--
-- ARGV  session, rules; then for each: lease, verdict, delay_s, payload
--       verdict: done | again (next visit: delay, body) | retry (delay, body) | dead (letter)
--                | back (body; empty: as it was taken)
-- Reply run, then for each 1, or 0: not held
-- A lease not yet released is released with its host's last gap.
local session, rules = ARGV[1], rules_of(ARGV[2])
local leases = leases_key(session)
local reply = {run}
local alive = held(session)

local function wait_again(host, it, front, delay, body)
  if delay > 0 then
    put_off(host, front, delay, body)
  else
    redis.call('RPUSH', queue_key(front, host), body)
    count('waiting', 1)
    arrived(host, it, front)
  end
end

local fates = {
  done = function() count('done', 1) end,
  again = function(host, it, front, delay, body)
    count('done', 1)
    wait_again(host, it, front, delay, body)
  end,
  retry = wait_again,
  back = function(host, it, front, _, body, taken_body)
    put_back(host, it, front, body ~= '' and body or taken_body)
  end,
  dead = function(_, _, _, _, letter)
    count('dead', 1)
    redis.call('HSET', DEAD, exactly(number()), letter)
  end,
}

local function finish(lease, verdict, delay, payload)
  local packed = alive and redis.call('HGET', leases, lease)
  if not packed then return 0 end
  local _, released, front, host, body = unpack_lease(packed)
  local settle = fates[verdict]
  local untouched = released == 1 and (verdict == 'done' or verdict == 'dead')
  local it = not untouched and load(host)
  if released == 0 then
    local gap = math.min(math.max(struct.unpack('<d', it.pace), rules.min_gap), rules.max_rest)
    it.rest = math.max(it.rest, now + gap)
    it.place = EMPTY
  end
  redis.call('HDEL', leases, lease)
  count('leased', -1)
  settle(host, it, front, delay, payload, body)
  if released == 0 and it.place == EMPTY then seat(host, it) end
  if it then save(host, it) end
  return 1
end

for i = 3, #ARGV, 4 do
  reply[#reply + 1] = finish(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3])
end
-- A session without leases is removed until it gets another: each entry of the sessions has leases.
if alive and redis.call('EXISTS', leases) == 0 then redis.call('ZREM', SESSIONS, session) end
close_books()
return reply
