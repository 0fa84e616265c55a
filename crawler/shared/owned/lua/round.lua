#!lua flags=allow-oom
-- Keep all workers in one round, and divide its URLs among them.
--
-- KEYS  the rounds of the crawl
-- ARGV  name of the worker; ms after which one that asks no more counts no longer; the round that it
--       is in; 1 if it has leased in that; 1 if it leases no more, unless it gets URLs; URLs that it
--       gives back; URLs that it asks for; pages that have come to it lately; most URLs of a round
--       (-1: any); ms of a round (-1: any); fewest pages that come lately to all (-1: any), and ms
--       after which these count; how many rounds a run has; when the run of the worker began,
--       ms; 1 if URLs are left over for the next round here, 2 if any wait for a date; URLs that it
--       has leased in its round since it said so last
-- Reply number of the round, URLs that the worker gets, 1 if nothing more is leased in the round,
--       1 if all rounds of the run are over, why the round before was over, URLs that all have
--       leased in the round, the first one of the run, when it began, ms (0: it did not yet)
local me, patience, mine, used, done = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local back, wanted, pages = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local most, longest, floor = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local now, of, others, live, waits, is_busy = now_ms(), {}, 0, 1, wanted > 0, done ~= '1'
local left_over = tonumber(ARGV[15])
local flat = redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do of[flat[i]] = flat[i + 1] end
for field, said in pairs(of) do
  local last, number, is_done, asks, left, came = said:match('^(%d+) (%d+) (%d) (%d) (%d) (%d+)$')
  if field:sub(1, 2) == 'w:' and field ~= 'w:' .. me then
    if tonumber(last) + patience < now then
      redis.call('HDEL', KEYS[1], field)
    else
      live, others = live + 1, others + tonumber(came)
      waits = waits or asks == '1'
      is_busy = is_busy or is_done ~= '1' or number ~= of.number
      left_over = math.max(left_over, tonumber(left))
    end
  end
end

local number, granted = tonumber(of.number or 0), tonumber(of.granted or 0)
local began, closed, why = tonumber(of.began or 0), of.closed or '', of.why or ''
local leased = tonumber(of.leased or 0)
local first, over, my_run = tonumber(of.first or 0), tonumber(of.over or 0), tonumber(ARGV[14])
-- A worker that is started again after the last round is of the run that is over.
if over > 0 and over >= my_run then
  redis.call('HDEL', KEYS[1], 'w:' .. me)
  return {number, 0, 1, 1, why, leased, first, began}
end
if first == 0 then
  number, first, granted, began, closed, leased = number + 1, number + 1, 0, 0, '', 0
end
local get = 0
if mine == number then
  granted, leased = math.max(0, granted - back), math.max(0, leased + tonumber(ARGV[16]))
  if used == '1' and began == 0 then began = now end
end
if closed == '' and began > 0 then
  if longest >= 0 and now >= began + longest then closed = 'time' end
  if floor >= 0 and now >= began + tonumber(ARGV[12]) and others + pages < floor then closed = 'floor' end
end
if mine == number and closed == '' and wanted > 0 then
  get = most < 0 and wanted or math.min(wanted, math.ceil((most - granted) / live))
  if most >= 0 then granted = granted + get end
end
is_busy = is_busy or get > 0 or mine ~= number
local may_get = closed == '' and waits and (most < 0 or granted < most)
-- What a worker had reserved that died before it leased counts as begun.
local has_begun = began > 0 or (most >= 0 and granted >= most)
if not is_busy and not may_get and not has_begun and left_over == 1 then
  first, over, why = 0, now, '' -- all that is left is of another kind than this run fetches
elseif not is_busy and not may_get and has_begun then
  why = closed ~= '' and closed or (most >= 0 and granted >= most and 'count' or 'dry')
  if number >= first + tonumber(ARGV[13]) - 1 then
    first, over = 0, now
  else
    number, granted, began, closed, leased = number + 1, 0, 0, '', 0
  end
end
redis.call('HSET', KEYS[1], 'number', number, 'first', first, 'over', over,
  'granted', granted, 'leased', leased, 'began', began, 'closed', closed, 'why', why,
  'w:' .. me, string.format('%d %d %s %d %s %d', now, mine, get > 0 and '0' or done,
    wanted > get and 1 or 0, ARGV[15], pages))
if first == 0 then redis.call('HDEL', KEYS[1], 'w:' .. me) end
return {number, get, closed ~= '' and 1 or 0, first == 0 and 1 or 0, why, leased, first, began}
