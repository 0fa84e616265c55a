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
    local front, host, body = unpack_refused(packed)
    local domain, it, is_page = ARGV[i + 1], load(host), front ~= URGENT and not is_free(body)
    local used = domain_budget and tonumber(redis.call('HGET', DOMAINS, domain) or 0)
    local is_full = (host_budget and it.admitted >= host_budget) or
      (domain_budget and used >= domain_budget)
    if not (is_page and is_full) then
      redis.call('HDEL', REFUSED, ARGV[i])
      redis.call('RPUSH', queue_key(front, host), body)
      count('refused', -1)
      count('waiting', 1)
      count('adds', 1)
      if is_page then
        it.admitted = it.admitted + 1
        if domain_budget then redis.call('HINCRBY', DOMAINS, domain, 1) end
      end
      arrived(host, it, front)
      save(host, it)
      back = back + 1
    end
  end
end
if back > 0 then close_books() end
return {run, back}
