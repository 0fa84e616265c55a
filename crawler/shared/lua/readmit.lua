#!lua
-- Queue URLs again that the rules of an earlier start refused, and those of this one admit.
--
-- ARGV  most URLs of a host, most of a registered domain ('' where there is no budget), then for each:
--       number, registered domain
-- Reply run, how many were queued: those that were there, and for which the budgets have room
local host_budget, domain_budget = tonumber(ARGV[1]), tonumber(ARGV[2])
local back = 0
for i = 3, #ARGV, 2 do
  local packed = redis.call('HGET', REFUSED, ARGV[i])
  if packed then
    local front, host, packed_url = unpack_refused(packed)
    local domain, record, is_page = ARGV[i + 1], load_host(host), front ~= URGENT and not is_free(packed_url)
    local used = domain_budget and tonumber(redis.call('HGET', DOMAINS, domain) or 0)
    local is_full = (host_budget and record.admitted >= host_budget) or
      (domain_budget and used >= domain_budget)
    if not (is_page and is_full) then
      redis.call('HDEL', REFUSED, ARGV[i])
      redis.call('RPUSH', queue_key(front, host), packed_url)
      add_to_total('refused', -1)
      add_waiting(record, front, 1)
      add_to_total('adds', 1)
      if is_page then
        record.admitted = record.admitted + 1
        if domain_budget then redis.call('HINCRBY', DOMAINS, domain, 1) end
      end
      note_queued(host, record, front)
      save_host(host, record)
      back = back + 1
    end
  end
end
if back > 0 then write_totals() end
return {run, back}
