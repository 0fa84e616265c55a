#!lua flags=allow-oom
-- Pass over the URLs at the head of a queue, for an act of the operator: those that stay go to its
-- end, so that the order is the same when all have been passed.
--
-- ARGV  host, registered domain, front; then for each at the head, as it was read: packed URL, what
--       becomes of it: '' (it stays) | 'r' and the rule that refuses it | 'd' and its dead letter
--       | 'f' and the front that it moves to | 'x' (it is forgotten)
-- Reply run, how many were still where they were: those were passed, the others not
local host, domain, front = ARGV[1], ARGV[2], tonumber(ARGV[3])
local queue = queue_key(front, host)
local passed = (#ARGV - 3) / 2
local heads = passed > 0 and redis.call('LRANGE', queue, 0, passed - 1) or {}
local record = load_host(host)
local fates = {}
for i = 1, passed do
  if heads[i] ~= ARGV[2 + 2 * i] then
    passed = i - 1
    break
  end
  fates[i] = ARGV[3 + 2 * i]
end
if passed > 0 then
  redis.call('LTRIM', queue, passed, -1)
  local left = 0
  for i = 1, passed do
    local kind, rest = string.sub(fates[i], 1, 1), string.sub(fates[i], 2)
    if kind == '' then
      redis.call('RPUSH', queue, heads[i])
    elseif kind == 'f' then
      local other = tonumber(rest)
      redis.call('RPUSH', queue_key(other, host), heads[i])
      add_waiting(record, front, -1)
      add_waiting(record, other, 1)
      note_queued(host, record, other)
    else
      left = left + 1
      if kind == 'r' then
        refuse(record, domain, host, front, rest, heads[i])
      elseif kind == 'd' then
        redis.call('HSET', DEAD, to_text(next_id()), rest)
        add_to_total('dead', 1)
      end
    end
  end
  add_waiting(record, front, -left)
  if redis.call('EXISTS', queue) == 0 then
    record.fronts = bit.band(record.fronts, bit.bnot(bit.lshift(1, front)))
  end
  save_host(host, record)
  write_totals()
end
return {run, passed}
