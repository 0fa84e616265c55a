#!lua flags=allow-oom
-- Finish leases: apply the verdicts of URLs whose pages are durable.
--
-- ARGV  session, rules; then for each: lease, verdict, delay_s, payload
--       verdict: done | again (next visit: delay, packed URL) | retry (delay, packed URL) | dead (letter)
--                | back (packed URL; empty: as it was taken)
-- Reply run, then for each 1, or 0: not held
-- A lease not yet released is released with its host's last gap.
local session, rules = ARGV[1], rules_of(ARGV[2])
local leases = leases_key(session)
local reply = {run}
local is_live = is_session_live(session)

local function wait_again(host, record, front, delay, packed_url)
  if delay > 0 then
    postpone(host, front, delay, packed_url)
  else
    redis.call('RPUSH', queue_key(front, host), packed_url)
    add_waiting(record, front, 1)
    note_queued(host, record, front)
  end
end

local apply_by_verdict = {
  done = function() add_to_total('done', 1) end,
  again = function(host, record, front, delay, packed_url)
    add_to_total('done', 1)
    wait_again(host, record, front, delay, packed_url)
  end,
  retry = wait_again,
  back = function(host, record, front, _, packed_url, taken_body)
    put_back(host, record, front, packed_url ~= '' and packed_url or taken_body)
  end,
  dead = function(_, _, _, _, letter)
    add_to_total('dead', 1)
    redis.call('HSET', DEAD, to_text(next_id()), letter)
  end,
}

local function finish(lease, verdict, delay, payload)
  local packed = is_live and redis.call('HGET', leases, lease)
  if not packed then return 0 end
  local _, released, front, host, packed_url = unpack_lease(packed)
  local apply = apply_by_verdict[verdict]
  local is_host_unchanged = released == 1 and (verdict == 'done' or verdict == 'dead')
  local record = not is_host_unchanged and load_host(host)
  if released == 0 then
    local gap = math.min(math.max(struct.unpack('<d', record.pace), rules.min_gap), rules.max_rest)
    record.rest = math.max(record.rest, now + gap)
    record.place = EMPTY
  end
  redis.call('HDEL', leases, lease)
  add_to_total('leased', -1)
  apply(host, record, front, delay, payload, packed_url)
  if released == 0 and record.place == EMPTY then file_or_rest(host, record) end
  if record then save_host(host, record) end
  return 1
end

for i = 3, #ARGV, 4 do
  reply[#reply + 1] = finish(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3])
end
-- A session without leases is removed until it gets another: each entry of the sessions has leases.
if is_live and redis.call('EXISTS', leases) == 0 then redis.call('ZREM', SESSIONS, session) end
write_totals()
return reply
