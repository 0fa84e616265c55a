-- The prelude of every operation on a shard: its keys, its time, its hosts.
--
-- KEYS[1] is the root of the shard, "gossamer:{17}". It is the only key a caller can name: only
-- the shard knows which host, queue or bucket comes next. All keys are made here, from the root:
--
--   <root>:m            hash    totals, clock, run of the server, turns of the levels
--   <root>:h            hash    host -> record: place, front, rest, pace, URLs that wait
--   <root>:b:<f>:<host> list    the waiting URLs of a host at front f, packed
--   <root>:f:<f>        list    front queue f: due hosts in the order of their turns, that were never
--                               asked
--   <root>:f:<f>:<s>    list    the same of hosts of standing s
--   <root>:r            zset    hosts at rest, by the end of their rest
--   <root>:l            zset    later URLs, by their date
--   <root>:w            zset    sessions with leases, by the time they end unless they are renewed
--   <root>:o:<session>  hash    lease -> what was taken, when, of which host
--   <root>:e:<session>  string  its leases have ended, not reported yet; expires in a day
--   <root>:x            set     workers that have links on their own disks
--   <root>:s:<n>        set     seen: bucket n of the keys of admitted URLs (an intset)
--   <root>:d            hash    number -> dead letter
--   <root>:k            hash    number -> URL that a rule refused when its turn came
--   <root>:c            hash    registered domain -> URLs admitted (only while there is a budget)
--   <root>:g:<n>        list    bucket n of the claims: which page owns a content digest
--   <root>:n            hash    names of archive files, by number and back
--   <root>:v:<digest>   string  the page that has it reserved; expires
--   <root>:t:<name>     string  a robots.txt, by its authority; expires
--   <root>:a:<t>:<q>    string  fingerprints of which quarter t is q (codec.py)
--   <root>:y:<host>     hash    pattern of URLs, hashed -> its statistics
--   <root>:z            zset    hosts with most left to do, by the seconds that takes at their last rests
--
-- Front 0 holds what is urgent and goes before all others; level n of a Candidate is front n + 1.
-- Numbers that leave Lua as text have 17 digits: %.14g, its default, would round times.
local root = KEYS[1]
local TOTALS, HOSTS, RESTING, LATER, SESSIONS, DEAD, DOMAINS, FILES, OUTBOXES, REFUSED, LONGEST =
  root .. ':m', root .. ':h', root .. ':r', root .. ':l', root .. ':w', root .. ':d',
  root .. ':c', root .. ':n', root .. ':x', root .. ':k', root .. ':z'

local function queue_key(front, host) return root .. ':b:' .. front .. ':' .. host end
local function front_key(front, standing)
  return root .. ':f:' .. front .. (standing > 0 and ':' .. standing or '')
end
local function leases_key(session) return root .. ':o:' .. session end
local function ended_key(session) return root .. ':e:' .. session end
local function seen_key(bucket) return root .. ':s:' .. bucket end
local function claims_key(bucket) return root .. ':g:' .. bucket end
local function stats_key(host) return root .. ':y:' .. host end
local function near_key(table, quarter) return root .. ':a:' .. table .. ':' .. quarter end
local function robots_key(authority) return root .. ':t:' .. authority end
local function reservation_key(digest) return root .. ':v:' .. digest end

local EMPTY, FRONT, RESTS, LEASED = 0, 1, 2, 3
-- The standing of a host: it was never asked, it answers, its last fetch failed.
local STANDINGS, NEW = 3, 0
local URGENT, FRONTS = 0, 16

-- The time of a shard never goes back, though the server's clock may be set back.
local read = redis.call('HMGET', TOTALS, 'clock', 'offset', 'run', 'next')
local clock, offset = tonumber(read[1] or 0), tonumber(read[2] or 0)
local run, next_number = string.sub(read[3] or '', 1, 8), tonumber(read[4] or 1)
local now = wall() + offset
if now < clock then
  offset = offset + clock - now
  now = clock
end
local was_set_back = offset > tonumber(read[2] or 0)

local changes = {}
local function add_to_total(field, by) changes[field] = (changes[field] or 0) + by end

local first_number = next_number
local function next_id()
  next_number = next_number + 1
  return next_number - 1
end

-- Called at the end of every operation that changed something.
local function write_totals()
  for field, by in pairs(changes) do
    if by ~= 0 then redis.call('HINCRBY', TOTALS, field, by) end
  end
  if was_set_back then redis.call('HSET', TOTALS, 'offset', offset) end
  if next_number > first_number then
    redis.call('HSET', TOTALS, 'clock', now, 'next', next_number)
  else
    redis.call('HSET', TOTALS, 'clock', now)
  end
end

local function to_text(value) return string.format('%.17g', value) end

-- A host: place 1, front 1, fronts with URLs 2 (bits), filings 4, rest 8, URLs admitted 4; its pace,
-- 30 bytes: gap 8, crawl-delay 8, failures 2, pauses 2, standing 1, fetches 1, mean 4 and variance 4
-- of the logarithms of their seconds; then URLs that wait 4. If it ever sent a Retry-After: the
-- longest 4, and when it was last in trouble 4.
local HOST_FORM, HOST_BYTES = '<BBI2I4dI4c30I4', 54
local NO_PACE = string.rep('\0', 30)

local function standing_of(record) return string.byte(record.pace, 21) or 0 end

local function count_waiting(host, fronts)
  local waiting = 0
  for front = 0, FRONTS - 1 do
    if bit.band(fronts, bit.lshift(1, front)) ~= 0 then
      waiting = waiting + redis.call('LLEN', queue_key(front, host))
    end
  end
  return waiting
end

local function load_host(host)
  local packed = redis.call('HGET', HOSTS, host)
  if not packed then
    return {place = EMPTY, front = 0, fronts = 0, filed = 0, rest = 0, admitted = 0, pace = NO_PACE,
            waiting = 0, asked = 0, trouble = 0}
  end
  local place, front, fronts, filed, rest, admitted, pace, waiting =
    struct.unpack(HOST_FORM, packed)
  local asked, trouble = 0, 0
  if #packed > HOST_BYTES then asked, trouble = struct.unpack('<I4I4', packed, HOST_BYTES + 1) end
  return {place = place, front = front, fronts = fronts, filed = filed, rest = rest,
          admitted = admitted, pace = pace, waiting = waiting, asked = asked, trouble = trouble}
end

-- Of more hosts than MOST_LONGEST those with least left to do are forgotten until their next change.
local MOST_LONGEST, KEPT_LONGEST, LEAST_GAP_S = 200, 150, 1
local function note_work(host, record)
  if record.waiting <= 0 then
    redis.call('ZREM', LONGEST, host)
    return
  end
  local gap, crawl_delay = struct.unpack('<dd', record.pace)
  redis.call('ZADD', LONGEST, record.waiting * math.max(gap, crawl_delay, LEAST_GAP_S), host)
  local hosts = redis.call('ZCARD', LONGEST)
  if hosts > MOST_LONGEST then redis.call('ZREMRANGEBYRANK', LONGEST, 0, hosts - KEPT_LONGEST - 1) end
end

local function save_host(host, record)
  redis.call('HSET', HOSTS, host, struct.pack(HOST_FORM, record.place, record.front, record.fronts,
    record.filed, record.rest, record.admitted, record.pace,
    record.waiting > 0 and record.waiting or 0)
    .. (record.asked > 0 and struct.pack('<I4I4', record.asked, record.trouble) or ''))
  note_work(host, record)
end

-- The longest Retry-After of a host is forgotten after so many seconds without trouble.
local REMEMBER = 86400

local function remembered(record)
  return now - record.trouble <= REMEMBER and record.asked or 0
end

-- Split what a worker sends after a fetch: the pace; then, 8 bytes, what the host asked for in its
-- trouble, which is noted. Less than 0: it had none.
local function take_pace(record, packed)
  local asked = struct.unpack('<d', packed, #NO_PACE + 1)
  if asked >= 0 then
    record.asked, record.trouble = math.max(math.ceil(asked), remembered(record)), math.floor(now)
  end
  return string.sub(packed, 1, #NO_PACE)
end

-- Count `urls` more that wait at `front`, or fewer.
local function add_waiting(record, front, urls)
  record.waiting = record.waiting + urls
  add_to_total('waiting', urls)
  add_to_total('waiting:' .. front, urls)
end

local function best_front(fronts)
  for front = 0, FRONTS - 1 do
    if bit.band(fronts, bit.lshift(1, front)) ~= 0 then return front end
  end
end

-- To the end of a front queue, or before the others there. An older entry of the host shows by its
-- number that it is stale.
local function file_in_front(host, record, front, first)
  record.place, record.front, record.filed = FRONT, front, (record.filed + 1) % 4294967296
  redis.call(first and 'LPUSH' or 'RPUSH', front_key(front, standing_of(record)),
    struct.pack('<I4', record.filed) .. host)
end

-- File a host that is not leased; `rested` if its rest has ended. If it is new after a rest, its
-- robots.txt was fetched and no page yet: it goes before hosts that were never asked, or it would
-- wait for all of them twice.
local function file_or_rest(host, record, rested)
  if record.fronts == 0 then
    record.place = EMPTY
  elseif record.rest > now then
    record.place = RESTS
    redis.call('ZADD', RESTING, record.rest, host)
  else
    file_in_front(host, record, best_front(record.fronts), rested and standing_of(record) == NEW)
  end
end

-- Note that a URL was queued at `front`.
local function note_queued(host, record, front)
  record.fronts = bit.bor(record.fronts, bit.lshift(1, front))
  if record.place == EMPTY then
    file_or_rest(host, record)
  elseif record.place == FRONT and front < record.front then
    file_in_front(host, record, front)
  end
end

local function put_back(host, record, front, packed_url)
  redis.call('LPUSH', queue_key(front, host), packed_url)
  add_waiting(record, front, 1)
  note_queued(host, record, front)
end

local function postpone(host, front, delay_s, packed_url)
  local entry = struct.pack('<I6BI2', next_id(), front, #host) .. host .. packed_url
  redis.call('ZADD', LATER, now + delay_s, entry)
  add_to_total('later', 1)
end

-- A lease: taken at 8, released 1, front 1, length of the host 2; then host and packed URL.
local function pack_lease(taken, released, front, host, packed_url)
  return struct.pack('<dBBI2', taken, released, front, #host) .. host .. packed_url
end

local function unpack_lease(packed)
  local taken, released, front, length = struct.unpack('<dBBI2', packed)
  return taken, released, front, string.sub(packed, 13, 12 + length), string.sub(packed, 13 + length)
end

-- A URL that counts against no budget: a robots.txt ("robots" as msgpack writes it), or what a
-- spider's code names, whose request, bytes that are not empty, follows "page" and an empty authority.
-- URLs are ASCII, so neither is found in them; cmsgpack reads no bytes.
local function is_free(packed_url)
  return string.find(packed_url, '\166robots', 1, true) ~= nil or
    string.find(packed_url, '\164page\160\196[^%z]') ~= nil or
    string.find(packed_url, '\164page\160[\197\198]') ~= nil
end

-- A URL that left its queue, or its lease, because of a rule: when 8, front 1, lengths of host 2 and
-- rule 1; then host, rule, packed URL.
local function refuse(record, domain, host, front, rule, packed_url)
  redis.call('HSET', REFUSED, to_text(next_id()),
    struct.pack('<dBI2B', now, front, #host, #rule) .. host .. rule .. packed_url)
  add_to_total('refused', 1)
  if front == URGENT or is_free(packed_url) then return end
  record.admitted = math.max(0, record.admitted - 1)
  if tonumber(redis.call('HGET', DOMAINS, domain) or 0) > 0 then
    redis.call('HINCRBY', DOMAINS, domain, -1)
  end
end

local function unpack_refused(packed)
  local _, front, length, rule = struct.unpack('<dBI2B', packed)
  return front, string.sub(packed, 13, 12 + length), string.sub(packed, 13 + length + rule)
end

local function is_session_live(session)
  local ends = redis.call('ZSCORE', SESSIONS, session)
  return ends and tonumber(ends) > now
end

-- Whether leases of the session have ended since that was last reported.
local function take_expiry_notice(session)
  local ends = redis.call('ZSCORE', SESSIONS, session)
  local ended = ends and tonumber(ends) <= now and redis.call('EXISTS', leases_key(session)) == 1
  return redis.call('DEL', ended_key(session)) == 1 or ended
end

-- Rules of a crawl: shortest gap, gap factor, longest gap, longest fetch, longest rest, how long a
-- lease may wait at its worker before its fetch begins, and the longest Retry-After; in seconds.
local function rules_of(packed)
  local min_gap, factor, max_gap, longest_fetch, max_rest, wait, max_asked =
    struct.unpack('<ddddddd', packed)
  return {min_gap = min_gap, factor = factor, max_gap = max_gap,
          longest_fetch = longest_fetch, max_rest = max_rest, wait = wait,
          max_asked = max_asked}
end

-- Until when a host rests whose lease was lost: its fetch is assumed to have taken as long as
-- possible, and its answer to have asked for the longest time that the host ever asked for
-- (docs/decisions/0008).
local function rest_after(taken, record, rules)
  local gap, crawl_delay = struct.unpack('<dd', record.pace)
  local longest = math.min(now - taken, rules.longest_fetch)
  local ended = math.min(now, taken + rules.wait + longest)
  local own = math.min(rules.factor * longest, rules.max_gap)
  local worst = ended + math.max(own, math.min(remembered(record), rules.max_asked))
  local full_gap = math.min(math.max(gap, crawl_delay, rules.min_gap), rules.max_rest)
  return math.max(worst, now + full_gap)
end

-- Prefix of a packed URL whose lease was lost: its page may be archived. No msgpack value
-- begins with it (codec.py).
local LOST = '\193'

local function mark_lost(packed_url)
  return string.sub(packed_url, 1, 1) == LOST and packed_url or LOST .. packed_url
end

-- Return up to `limit` leases of sessions that were not renewed, and report how many. Of
-- `searched_session`, if any, only the leases in `archived` can have an archived page.
local function expire_leases(rules, limit, searched_session, archived)
  local returned = 0
  for _, session in ipairs(redis.call('ZRANGEBYSCORE', SESSIONS, '-inf', now, 'LIMIT', 0, 4)) do
    local leases = leases_key(session)
    local lost = redis.call('HRANDFIELD', leases, limit - returned, 'WITHVALUES')
    if #lost > 0 then redis.call('SET', ended_key(session), '', 'EX', 86400) end
    for i = 1, #lost, 2 do
      local taken, released, front, host, packed_url = unpack_lease(lost[i + 1])
      local record = load_host(host)
      -- A released host has its rest already.
      if released == 0 then
        record.rest = math.max(record.rest, rest_after(taken, record, rules))
        record.place = EMPTY
      end
      redis.call('HDEL', leases, lost[i])
      local is_unarchived = session == searched_session and not archived[lost[i]]
      put_back(host, record, front, is_unarchived and packed_url or mark_lost(packed_url))
      save_host(host, record)
      add_to_total('leased', -1)
      returned = returned + 1
    end
    if redis.call('EXISTS', leases) == 0 then redis.call('ZREM', SESSIONS, session) end
    if returned >= limit then break end
  end
  return returned
end

-- Statistics of a pattern: pages 4, new 4, in a row without anything new 4, time of the last 8. All patterns of a host
-- beyond the first `most` count as one.
local OTHER_PATTERNS = ''

local function stats_of(key, pattern, most)
  local packed = redis.call('HGET', key, pattern)
  if packed or redis.call('HLEN', key) < most then return pattern, packed end
  return OTHER_PATTERNS, redis.call('HGET', key, OTHER_PATTERNS)
end
