#!lua
-- Admit the URLs that were not seen before; the seen test and the adding are atomic.
-- No allow-oom: if memory is used up, the script is refused before it begins.
--
-- ARGV  most URLs of a host, most of a registered domain ('' where there is no budget), then groups:
--       host, domain, front, flags, n, and n times: key (signed 64 bits, in digits), packed URL
--       flags: 1 no seen test, 2 to the head, 4 of no budget (a robots.txt, what a spider's code names,
--       what is urgent), 8 later: the packed URL begins with the delay, 8 bytes, 16 seen from now on,
--       though there is no seen test, 32 the reply names those that were seen
-- Reply run, new, seen, over budget, keys of those seen that it names, then of each group with some
--       over budget: 'host' or 'domain', its name, how many

-- Seen: buckets of 100 to 400 keys, by linear hashing (Litwin, 1980), because an intset costs 9 bytes
-- a key at that size and 64 or more beyond 512. The last nine digits of a key choose its bucket;
-- a whole key would not fit into a Lua number.
local PER_BUCKET = 190
local read_seen = redis.call('HMGET', TOTALS, 'buckets', 'seen')
local buckets, seen_total = tonumber(read_seen[1] or 1), tonumber(read_seen[2] or 0)
local old_buckets = buckets
local round_size = 1
while round_size * 2 <= buckets do round_size = round_size * 2 end

local function bucket_of(key)
  local bucket = math.abs(tonumber(string.sub(key, -9))) % (round_size * 2)
  if bucket >= buckets then bucket = bucket - round_size end
  return bucket
end

local function split_bucket()
  local from, to = buckets - round_size, buckets
  local moved = {}
  for _, key in ipairs(redis.call('SMEMBERS', seen_key(from))) do
    if math.abs(tonumber(string.sub(key, -9))) % (round_size * 2) == to then moved[#moved + 1] = key end
  end
  if #moved > 0 then
    redis.call('SREM', seen_key(from), unpack(moved))
    redis.call('SADD', seen_key(to), unpack(moved))
  end
  buckets = buckets + 1
  if buckets == round_size * 2 then round_size = buckets end
end

local host_budget, domain_budget = tonumber(ARGV[1]), tonumber(ARGV[2])
local new, seen, over, filtered_new = 0, 0, 0, 0
local over_budget, seen_keys = {}, {}
local at = 3

-- How many URLs a group of one host may still add, and whose budget limits it.
local function room_of(record, domain, has_no_budget)
  local room, unit = math.huge, 'host'
  if has_no_budget then return room, unit end
  if host_budget then room = host_budget - record.admitted end
  if domain_budget then
    local left = domain_budget - tonumber(redis.call('HGET', DOMAINS, domain) or 0)
    if left < room then room, unit = left, 'domain' end
  end
  return room, unit
end

-- A key of another type has one of our names. The URLs of this group are no longer marked as seen,
-- because they are not queued. The groups before it are.
local fault
local function undo(marked, error)
  for _, key in ipairs(marked) do redis.pcall('SREM', seen_key(bucket_of(key)), key) end
  filtered_new = filtered_new - #marked
  fault = error
end

local function admit_group()
  local host, domain, front = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local flags, n = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local unfiltered, has_no_budget = bit.band(flags, 1) ~= 0, bit.band(flags, 4) ~= 0
  local is_marked_seen = not unfiltered or bit.band(flags, 16) ~= 0
  local names_seen = bit.band(flags, 32) ~= 0
  at = at + 5
  local record = load_host(host)
  local room, unit = room_of(record, domain, has_no_budget)
  local over_before = over
  local fresh, marked = {}, {}
  local function note_seen(key)
    seen = seen + 1
    if names_seen then seen_keys[#seen_keys + 1] = key end
  end
  for i = at, at + 2 * n - 2, 2 do
    local key = ARGV[i]
    if #fresh < room then
      local answer = is_marked_seen and redis.pcall('SADD', seen_key(bucket_of(key)), key)
      if type(answer) == 'table' then return undo(marked, answer) end
      local is_new = answer == 1
      if is_new then
        filtered_new = filtered_new + 1
        marked[#marked + 1] = key
      end
      if unfiltered or is_new then
        fresh[#fresh + 1] = ARGV[i + 1]
      else
        note_seen(key)
      end
    elseif not unfiltered and redis.call('SISMEMBER', seen_key(bucket_of(key)), key) == 1 then
      note_seen(key)
    else
      over = over + 1
    end
  end
  at = at + 2 * n
  if over > over_before then
    over_budget[#over_budget + 1] = unit
    over_budget[#over_budget + 1] = unit == 'host' and host or domain
    over_budget[#over_budget + 1] = over - over_before
  end
  if #fresh == 0 then return end
  if bit.band(flags, 8) ~= 0 then
    for _, packed_url in ipairs(fresh) do
      postpone(host, front, struct.unpack('<d', packed_url), string.sub(packed_url, 9))
    end
  else
    local push = bit.band(flags, 2) ~= 0 and 'LPUSH' or 'RPUSH'
    local answer = redis.pcall(push, queue_key(front, host), unpack(fresh))
    if type(answer) == 'table' then return undo(marked, answer) end
    add_waiting(record, front, #fresh)
    note_queued(host, record, front)
  end
  if not has_no_budget then
    record.admitted = record.admitted + #fresh
    if domain_budget then redis.call('HINCRBY', DOMAINS, domain, #fresh) end
  end
  save_host(host, record)
  new = new + #fresh
end

while at <= #ARGV and not fault do admit_group() end

seen_total = seen_total + filtered_new
while seen_total > buckets * PER_BUCKET do split_bucket() end
if new > 0 then
  add_to_total('seen', filtered_new)
  add_to_total('adds', new)
  if buckets > old_buckets then redis.call('HSET', TOTALS, 'buckets', buckets) end
  write_totals()
end
return fault or {run, new, seen, over, seen_keys, unpack(over_budget)}
