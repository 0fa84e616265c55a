#!lua flags=allow-oom
-- Remove URLs that a worker refuses from the queue behind the URL of one of its leases, under which
-- nothing was fetched, and keep them as refused.
--
-- ARGV  session, lease, registered domain, why its own URL is refused ('': more is judged first), how
--       many bodies to send; then for each body at the head of the queue, as it was sent: body, why it
--       is refused ('': it stays)
-- Reply run, 1 or 0: not held, how many bodies were still where they were, then the bodies at the head
-- If its own URL is refused the lease ends. Its host was not contacted, so its rest is unchanged.
local session, lease, domain, own = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local packed = held(session) and redis.call('HGET', leases_key(session), lease)
if not packed then return {run, 0, 0} end
local _, released, front, host, body = unpack_lease(packed)
if released == 1 then return {run, 0, 0} end
local queue = queue_key(front, host)
local it = load(host)

-- Another URL may have been queued before them meanwhile: then the comparison ends there.
local told = (#ARGV - 5) / 2
local heads = told > 0 and redis.call('LRANGE', queue, 0, told - 1) or {}
local same = 0
local kept, refused = {}, {}
for i = 1, told do
  local at = 4 + 2 * i
  if heads[i] ~= ARGV[at] then break end
  same = i
  if ARGV[at + 1] == '' then
    kept[#kept + 1] = heads[i]
  else
    refused[#refused + 1] = {ARGV[at + 1], heads[i]}
  end
end
if #refused > 0 then
  redis.call('LTRIM', queue, same, -1)
  for i = #kept, 1, -1 do redis.call('LPUSH', queue, kept[i]) end
  for _, each in ipairs(refused) do refuse(it, domain, host, front, each[1], each[2]) end
  count('waiting', -#refused)
  if redis.call('EXISTS', queue) == 0 then
    it.fronts = bit.band(it.fronts, bit.bnot(bit.lshift(1, front)))
  end
end

local reply = {run, 1, same}
if own == '' then
  for _, each in ipairs(redis.call('LRANGE', queue, 0, tonumber(ARGV[5]) - 1)) do
    reply[#reply + 1] = each
  end
else
  redis.call('HDEL', leases_key(session), lease)
  refuse(it, domain, host, front, own, body)
  count('leased', -1)
  it.place = EMPTY
  seat(host, it)
end
if own ~= '' or #refused > 0 then
  save(host, it)
  close_books()
end
return reply
