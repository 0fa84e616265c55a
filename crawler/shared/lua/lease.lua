#!lua flags=allow-oom
-- Take URLs, each of another host, all of them due.
--
-- ARGV  session, how many of hosts of each standing ("1:4,0:2": four of standing 1, then two of
--       standing 0, none of others), lease_s, shares of the levels ("60,30,10"), rules, entries
--       looked at for one lease, slice of what came due, how many in all
-- Reply run, state, wake_s, now; then for each lease: number, front, host, pace, packed URL
--       state: 'ok'; 'lost': leases of this session have ended and come back;
--       wake_s: when to ask again, '' when nothing waits for a time
local session, lease_s = ARGV[1], tonumber(ARGV[3])
local rules, max_front_reads, slice = rules_of(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local most = tonumber(ARGV[8])

local quiet = redis.call('HMGET', TOTALS, 'quiet_until', 'restarted')
local quiet_until, restarted = tonumber(quiet[1] or 0), tonumber(quiet[2] or '-inf')
if quiet_until > now then return {run, 'ok', to_text(quiet_until - now), to_text(now)} end

local lost = take_expiry_notice(session)
local changes_made = expire_leases(rules, slice)

for _, host in ipairs(redis.call('ZRANGEBYSCORE', RESTING, '-inf', now, 'LIMIT', 0, slice)) do
  local record = load_host(host)
  redis.call('ZREM', RESTING, host)
  file_or_rest(host, record, true)
  save_host(host, record)
  changes_made = changes_made + 1
end

for _, entry in ipairs(redis.call('ZRANGEBYSCORE', LATER, '-inf', now, 'LIMIT', 0, slice)) do
  local _, front, length = struct.unpack('<I6BI2', entry)
  local host, packed_url = string.sub(entry, 10, 9 + length), string.sub(entry, 10 + length)
  local record = load_host(host)
  redis.call('ZREM', LATER, entry)
  redis.call('RPUSH', queue_key(front, host), packed_url)
  add_to_total('later', -1)
  add_waiting(record, front, 1)
  note_queued(host, record, front)
  save_host(host, record)
  changes_made = changes_made + 1
end

if lost then
  redis.call('DEL', ended_key(session))
  write_totals()
  return {run, 'lost', '0', to_text(now)}
end

-- Which level has the next turn: stride scheduling (Waldspurger and Weihl, 1995). Front 0 is above it.
local steps = {}
for share in string.gmatch(ARGV[4], '[^,]+') do steps[#steps + 1] = 1 / tonumber(share) end
local passes = {}
local last = 0
local stride = redis.call('HGET', TOTALS, 'passes')
if stride then
  passes = cmsgpack.unpack(stride)
  last = table.remove(passes, 1)
end
for level = 1, #steps do passes[level] = passes[level] or steps[level] end

local wanted = {}
local lengths = {}  -- of the front queues, by standing
for standing, limit in string.gmatch(ARGV[2], '(%d+):(%d+)') do
  standing = tonumber(standing)
  wanted[#wanted + 1] = {standing = standing, limit = tonumber(limit)}
  lengths[standing] = {}
  for front = 0, #steps do
    lengths[standing][front] = redis.call('LLEN', front_key(front, standing))
  end
end

-- A host may have been contacted in the last moments that its server lost, by a worker that was
-- killed as well. So after a restart it rests at least its gap.
local function gap_since_restart(record)
  local gap, crawl_delay = struct.unpack('<dd', record.pace)
  return restarted + math.min(math.max(gap, crawl_delay), rules.max_rest)
end

local function due_host(standing, front)
  for _ = 1, max_front_reads do
    if lengths[standing][front] == 0 then return end
    local entry = redis.call('LPOP', front_key(front, standing))
    lengths[standing][front] = lengths[standing][front] - 1
    changes_made = changes_made + 1
    local host = string.sub(entry, 5)
    local record = load_host(host)
    if record.place == FRONT and record.filed == struct.unpack('<I4', entry) then
      record.rest = math.max(record.rest, gap_since_restart(record))
      if record.rest <= now then return host, record end
      file_or_rest(host, record)
      save_host(host, record)
    end
  end
end

local function next_front(standing)
  if lengths[standing][URGENT] > 0 then return URGENT end
  local best
  for front = 1, #steps do
    if lengths[standing][front] > 0 then
      local pass = math.max(passes[front], last)
      if not best or pass < math.max(passes[best], last) then best = front end
    end
  end
  return best
end

local leases = leases_key(session)
local reply = {run, 'ok', '', to_text(now)}

local function grant_lease(host, record)
  local front = record.front
  local queue = queue_key(front, host)
  local packed_url = redis.call('LPOP', queue)
  if redis.call('EXISTS', queue) == 0 then
    record.fronts = bit.band(record.fronts, bit.bnot(bit.lshift(1, front)))
  end
  if not packed_url then  -- the queue was removed from outside: its host has others
    record.waiting = count_waiting(host, record.fronts)
    file_or_rest(host, record)
    save_host(host, record)
    return 0
  end
  record.place = LEASED
  add_waiting(record, front, -1)
  save_host(host, record)
  local lease = to_text(next_id())
  redis.call('HSET', leases, lease, pack_lease(now, 0, front, host, packed_url))
  local size = #reply
  reply[size + 1], reply[size + 2], reply[size + 3] = lease, front, host
  reply[size + 4], reply[size + 5] = record.pace, packed_url
  return 1
end

local granted = 0
local function take(standing, limit)
  local taken = 0
  for _ = 1, limit + max_front_reads do
    local front = taken < limit and next_front(standing)
    if not front then break end
    local host, record = due_host(standing, front)
    if host then
      if front ~= URGENT then
        last = math.max(passes[front], last)
        passes[front] = last + steps[front]
      end
      taken = taken + grant_lease(host, record)
    end
  end
  granted = granted + taken
end
for _, each in ipairs(wanted) do take(each.standing, math.min(each.limit, most - granted)) end

if granted > 0 then
  add_to_total('leased', granted)
  redis.call('ZADD', SESSIONS, now + lease_s, session)
  table.insert(passes, 1, last)
  redis.call('HSET', TOTALS, 'passes', cmsgpack.pack(passes))
end
-- A poll that finds nothing writes nothing: an idle worker polls each shard four times a second.
if changes_made > 0 or was_set_back then write_totals() end

-- The time to ask again may be too early, but never too late.
local function wake_s()
  for _, each in ipairs(wanted) do
    for front = 0, #steps do
      if lengths[each.standing][front] > 0 then return '0' end
    end
  end
  local earliest
  for _, times in ipairs({RESTING, LATER, SESSIONS}) do
    local first = tonumber(redis.call('ZRANGE', times, 0, 0, 'WITHSCORES')[2] or math.huge)
    if not earliest or first < earliest then earliest = first end
  end
  return earliest < math.huge and to_text(math.max(0, earliest - now)) or ''
end
reply[3] = wake_s()
return reply
