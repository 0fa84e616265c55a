#!lua flags=allow-oom
-- Lead the plan of the shards, if no other worker does, and perhaps write the next one.
--
-- KEYS  the plan
-- ARGV  token of the worker, ms of its lead (0: it ends), number of the plan that this one was made
--       from, the plan ('': none)
-- Reply whether the worker leads, number of the plan, the plan
local leader, held, number, plan = unpack(redis.call('HMGET', KEYS[1], 'leader', 'until', 'number', 'plan'))
number, plan, held = tonumber(number or 0), plan or '', tonumber(held or 0) - now_ms()
-- One that is held for longer was taken before the server's clock went back.
if leader ~= ARGV[1] and held > 0 and held <= tonumber(ARGV[2]) then return {0, number, plan} end
redis.call('HSET', KEYS[1], 'leader', ARGV[1], 'until', now_ms() + ARGV[2])
if ARGV[4] ~= '' and number == tonumber(ARGV[3]) then
  number, plan = number + 1, ARGV[4]
  redis.call('HSET', KEYS[1], 'number', number, 'plan', plan)
end
return {1, number, plan}
