#!lua flags=allow-oom
-- Remove URLs that a worker refuses from the queue behind the URL of one of its leases, under which
-- nothing was fetched, and keep them as refused.
--
-- ARGV  session, lease, registered domain, why its own URL is refused ('': more is judged first), how
--       many packed URLs to send; then for each packed URL at the head of the queue, as it was sent: packed URL, why it
--       is refused ('': it stays)
-- Reply run, 1 or 0: not held, how many packed URLs were still where they were, then the packed URLs at the head
-- If its own URL is refused the lease ends. Its host was not contacted, so its rest is unchanged.
local session, lease, domain, own_refusal = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local packed = is_session_live(session) and redis.call('HGET', leases_key(session), lease)
if not packed then return {run, 0, 0} end
local _, released, front, host, packed_url = unpack_lease(packed)
if released == 1 then return {run, 0, 0} end
local queue = queue_key(front, host)
local record = load_host(host)

-- Another URL may have been queued before them meanwhile: then the comparison ends there.
local sent = (#ARGV - 5) / 2
local heads = sent > 0 and redis.call('LRANGE', queue, 0, sent - 1) or {}
local unchanged = 0
local kept, refused = {}, {}
for i = 1, sent do
  local at = 4 + 2 * i
  if heads[i] ~= ARGV[at] then break end
  unchanged = i
  if ARGV[at + 1] == '' then
    kept[#kept + 1] = heads[i]
  else
    refused[#refused + 1] = {ARGV[at + 1], heads[i]}
  end
end
if #refused > 0 then
  redis.call('LTRIM', queue, unchanged, -1)
  for i = #kept, 1, -1 do redis.call('LPUSH', queue, kept[i]) end
  for _, each in ipairs(refused) do refuse(record, domain, host, front, each[1], each[2]) end
  add_waiting(record, front, -#refused)
  if redis.call('EXISTS', queue) == 0 then
    record.fronts = bit.band(record.fronts, bit.bnot(bit.lshift(1, front)))
  end
end

local reply = {run, 1, unchanged}
if own_refusal == '' then
  for _, each in ipairs(redis.call('LRANGE', queue, 0, tonumber(ARGV[5]) - 1)) do
    reply[#reply + 1] = each
  end
else
  redis.call('HDEL', leases_key(session), lease)
  refuse(record, domain, host, front, own_refusal, packed_url)
  add_to_total('leased', -1)
  record.place = EMPTY
  file_or_rest(host, record)
end
if own_refusal ~= '' or #refused > 0 then
  save_host(host, record)
  write_totals()
end
return reply
