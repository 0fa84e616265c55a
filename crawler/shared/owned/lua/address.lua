#!lua flags=allow-oom
-- Give an address to one worker for a while, to the others in the order in which they asked.
--
-- KEYS  the root of the shard that has the address; the address
-- ARGV  name of the worker; 'ask' or 'give'; ms for which it gets the address; ms after that, in
--       which a fetch that it began may be under way or its rest may last; ms for which it still
--       holds the address, as it knows; ms until the end of the rest that it knows of; ms after
--       which a worker that asks no more waits no longer
-- Reply 'held', for how many ms, 1 if others wait | 'busy', for how many ms | 'given'
local me, slice, after, held = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local patience, now, of = tonumber(ARGV[7]), now_ms(), {}
local flat = redis.call('HGETALL', KEYS[2])
for i = 1, #flat, 2 do of[flat[i]] = flat[i + 1] end
local owner, ends, free = of.owner or '', tonumber(of.ends or 0), tonumber(of.free or 0)

-- After a restart that may have lost who has it, only who knows that it has it gets it at once.
local run, restarted = unpack(redis.call('HMGET', KEYS[1], 'run', 'restarted'))
if of.run ~= run and restarted and held == 0 then
  free = math.max(free, tonumber(restarted) + slice + after)
end
if owner == me or (held > 0 and of.run ~= run) then
  owner, free = '', math.max(free, now + tonumber(ARGV[6]))
elseif owner ~= '' then
  free = math.max(free, ends + after)
end

-- Who waits: its first question and its last one, by its name.
local first, joined, others = me, tonumber((of['w:' .. me] or ''):match('^%d+') or now), false
for field, times in pairs(of) do
  local since, last = times:match('^(%d+) (%d+)$')
  if field:sub(1, 2) == 'w:' and field ~= 'w:' .. me then
    if tonumber(last) + patience < now then
      redis.call('HDEL', KEYS[2], field)
    else
      others = true
      if tonumber(since) < joined then first = field end
    end
  end
end

local reply
if ARGV[2] == 'give' then
  redis.call('HDEL', KEYS[2], 'w:' .. me)
  reply = {'given'}
elseif held > 0 and others then
  owner, ends, reply = me, now + held, {'held', held, 1}
elseif held > 0 or (now >= free and first == me) then
  owner, ends, reply = me, now + slice, {'held', slice, others and 1 or 0}
  redis.call('HDEL', KEYS[2], 'w:' .. me)
else
  redis.call('HSET', KEYS[2], 'w:' .. me, string.format('%d %d', joined, now))
  reply = {'busy', math.max(0, free - now)}
end
if owner == me or of.owner == me then
  redis.call('HSET', KEYS[2], 'owner', owner, 'ends', ends, 'free', free, 'run', run or '')
end
redis.call('PEXPIRE', KEYS[2], math.max(ends, free, now) - now + slice + after)
return reply
